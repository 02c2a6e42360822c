//! The TLS and token path against the emulator: a whole epoch, from the key file to rows a reader sees.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::{FaultPlan, Rpc};
use bigquery_write_emulator::schema::Schema;
use bigquery_write_emulator::{Config, Emulator, Handle, TlsFiles};
use bigquery_write_proto::rows::{
    Format, MissingValues, RowEncoder, RowOptions, SubMicroseconds, Wire, table_schema_for,
};

use super::super::*;
use crate::credentials::token_source;
use crate::options::SinkOptions;
use crate::testing::{Certificates, TokenServer, file};

/// An emulator behind TLS, the options of a pipeline that writes to it, and what they need to stay.
struct Setting {
    emulator: Emulator,
    handle: Handle,
    options: SinkOptions,
    _files: Vec<tempfile::NamedTempFile>,
}

fn columns() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn target() -> TableRef {
    TableRef::new("shop", "sales", "orders")
}

async fn setting(tokens: &TokenServer, faults: &str) -> Setting {
    let certificates = Certificates::new();
    let (cert, key) = (file(&certificates.server.0), file(&certificates.server.1));
    let tls = TlsFiles {
        cert: cert.path().to_owned(),
        key: key.path().to_owned(),
    };
    let faults: FaultPlan = serde_json::from_str(faults).unwrap();
    let emulator = Emulator::start(Config {
        tls: Some(tls),
        faults,
        ..Config::default()
    })
    .await
    .unwrap();
    let handle = emulator.handle();
    handle
        .create_dataset(&DatasetRef::new("shop", "sales"), "")
        .unwrap();
    handle
        .create_table(
            &target(),
            Schema::from_wire(&table_schema_for(&columns()).unwrap()).unwrap(),
        )
        .unwrap();
    let (key_file, grpc) = (tokens.key_file(), format!("https://{}", emulator.grpc_addr()));
    let pairs = [
        ("project", "shop"),
        ("dataset", "sales"),
        ("table", "orders"),
        ("endpoint.grpc", &grpc),
        ("endpoint.ca", certificates.ca.path().to_str().unwrap()),
        ("credentials", key_file.path().to_str().unwrap()),
    ];
    let options =
        SinkOptions::parse(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
    Setting {
        emulator,
        handle,
        options,
        _files: vec![cert, key, certificates.ca, key_file],
    }
}

fn connect(options: &SinkOptions) -> Transport {
    Transport::connect(&options.endpoints, token_source(options), None).unwrap()
}

#[tokio::test]
async fn an_epoch_goes_through_tls_with_a_token_of_the_key() {
    an_epoch(Format::Arrow).await;
}

#[tokio::test]
async fn an_epoch_of_protobuf_goes_there_too() {
    an_epoch(Format::Proto).await;
}

async fn an_epoch(format: Format) {
    let tokens = TokenServer::start(&["one", "two"]).await;
    let refuse_one_flush = r#"{"rules": [{"rpc": "FlushRows", "occurrence": {"nth": 1},
        "action": {"kind": "refuse", "code": "UNAUTHENTICATED", "message": "expired"}}]}"#;
    let Setting {
        emulator,
        handle,
        options,
        _files,
    } = setting(&tokens, refuse_one_flush).await;
    let transport = connect(&options);

    let schema = transport.table_schema(&options.table).await.unwrap();
    let row_options = RowOptions {
        sub_microseconds: SubMicroseconds::Truncate,
        missing_values: MissingValues::Null,
    };
    let encoder = RowEncoder::new(&columns(), &schema, row_options).unwrap();
    let wire = Wire::new(format, &encoder, &schema).unwrap();
    let batch = RecordBatch::try_new(
        columns(),
        vec![
            Arc::new(Int64Array::from(vec![1, 2, 3])),
            Arc::new(StringArray::from(vec![Some("a"), None, Some("ü")])),
        ],
    )
    .unwrap();
    let created = transport.create_stream(&options.table).await.unwrap();
    let mut append = transport.open_append(&created.name, wire.writer_schema(), TRACE_ID, 2);
    for (offset, length) in [(0, 1), (1, 2)] {
        let rows = encoder.convert(&batch.slice(offset, length)).unwrap().batch;
        let request = AppendRequest {
            offset: Some(i64::try_from(offset).unwrap()),
            rows: wire.encode(&[wire.measure(rows).unwrap()]).unwrap(),
        };
        append.send(request).await.unwrap();
    }
    for offset in [0, 1] {
        let AppendEvent::Answer(answer) = append.next_event().await else {
            panic!("the call ended")
        };
        assert_eq!(
            answer,
            AppendAnswer {
                result: Ok(Some(offset)),
                updated_schema: None
            }
        );
    }
    assert_eq!(handle.rows(&target()).unwrap().num_rows(), 0);
    assert_eq!(transport.flush_rows(&created.name, 2).await.unwrap(), 2);

    let visible = handle.rows(&target()).unwrap();
    assert_eq!(visible.column(0).as_ref(), batch.column(0).as_ref());
    assert_eq!(visible.column(1).as_ref(), batch.column(1).as_ref());

    let calls: Vec<_> = handle
        .calls()
        .into_iter()
        .map(|call| {
            (
                call.rpc,
                call.authorization.unwrap(),
                call.routing.unwrap(),
                call.trace_id,
            )
        })
        .collect();
    let bearer = |token: &str| format!("Bearer {token}");
    let (table, stream, none) = (&options.table, &created.name, String::new);
    assert_eq!(
        calls,
        [
            (
                Rpc::GetWriteStream,
                bearer("one"),
                format!("name={table}/streams/_default"),
                none()
            ),
            (
                Rpc::CreateWriteStream,
                bearer("one"),
                format!("parent={table}"),
                none()
            ),
            (
                Rpc::AppendRows,
                bearer("one"),
                format!("write_stream={stream}"),
                TRACE_ID.to_owned()
            ),
            (
                Rpc::FlushRows,
                bearer("one"),
                format!("write_stream={stream}"),
                none()
            ),
            (
                Rpc::FlushRows,
                bearer("two"),
                format!("write_stream={stream}"),
                none()
            ),
        ]
    );
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_emulators_certificate_is_not_trusted_without_its_authority() {
    let tokens = TokenServer::start(&["one"]).await;
    let Setting {
        emulator: _emulator,
        handle,
        mut options,
        _files,
    } = setting(&tokens, "{}").await;
    options.endpoints.ca = None;
    let error = connect(&options).create_stream(&options.table).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("give the authority's PEM file as option 'endpoint.ca'"),
        "{error}"
    );
    assert!(error.needs_change());
    assert_eq!(handle.calls(), []);
}
