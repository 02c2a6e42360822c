//! What clients see of an error on the wire (write-api.md 3.1).

use bigquery_write_emulator::machine::Behaviour;
use bigquery_write_emulator::{Config, Emulator};
use bigquery_write_proto::wire::{RpcStatus, StorageError};
use prost::Message;
use tonic::Status;

use super::Fact;
use crate::grpc::{connect, flush, prepare};
use crate::world::{TABLE, switches};

pub(super) const FACTS: &[Fact] = &[
    Fact {
        source: "write-api.md 3.1 [CLIENT J:Exceptions, supabase/etl]",
        says: "a call's status carries the StorageError in grpc-status-details-bin",
        behaviour: Behaviour::StorageErrorInDetails,
        script: || {
            let status = refused();
            let details = RpcStatus::decode(status.details()).unwrap();
            let details = details
                .details
                .first()
                .map(|detail| format!("{}: {}", detail.type_url, said(detail.value.as_slice())));
            vec![format!("{:?}", status.code()), details.unwrap_or_default()]
        },
        answers: &[
            "NotFound",
            "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError: STREAM_NOT_FOUND of gone",
        ],
    },
    Fact {
        source: "write-api.md 3.1 [CLIENT N:error]",
        says: "and alone in the trailer google.cloud.bigquery.storage.v1.storageerror-bin",
        behaviour: Behaviour::StorageErrorInTrailer,
        script: || {
            let status = refused();
            let trailer = status
                .metadata()
                .get_bin("google.cloud.bigquery.storage.v1.storageerror-bin");
            let trailer = trailer.map(|trailer| said(&trailer.to_bytes().unwrap()));
            vec![trailer.unwrap_or_default()]
        },
        answers: &["STREAM_NOT_FOUND of gone"],
    },
];

/// A flush of a stream that is not there, over a real connection.
fn refused() -> Status {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let config = Config {
            switches: switches(Default::default()),
            ..Config::default()
        };
        let emulator = Emulator::start(config).await.unwrap();
        prepare(&emulator.handle());
        let mut client = connect(&emulator).await.unwrap();
        let status = flush(&mut client, &format!("{TABLE}/streams/gone"), 0).await;
        emulator.shutdown().await;
        status.unwrap_err()
    })
}

fn said(error: &[u8]) -> String {
    let error = StorageError::decode(error).unwrap();
    let stream = error.entity.rsplit('/').next().unwrap_or_default();
    format!("{} of {stream}", error.code().as_str_name())
}
