//! Our own append messages are Google's on the wire, but for a descriptor's extensions, which ours keep.

#![allow(clippy::unwrap_used)] // helpers are tests too

use bigquery_write_proto::wire::append_rows_request::{
    ArrowData, MissingValueInterpretation, ProtoData, Rows,
};
use bigquery_write_proto::wire::{AppendRowsRequest, ArrowRecordBatch, ArrowSchema, ProtoRows, ProtoSchema};
use bytes::Bytes;
use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1 as google;
use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto};

fn descriptor() -> DescriptorProto {
    DescriptorProto {
        name: Some("Row".to_owned()),
        field: vec![FieldDescriptorProto {
            name: Some("n".to_owned()),
            number: Some(1),
            r#type: Some(Type::Int64 as i32),
            ..FieldDescriptorProto::default()
        }],
        ..DescriptorProto::default()
    }
}

fn google_request(rows: google::append_rows_request::Rows) -> google::AppendRowsRequest {
    google::AppendRowsRequest {
        write_stream: "s".to_owned(),
        offset: Some(0),
        trace_id: "a:b".to_owned(),
        missing_value_interpretations: [("c".to_owned(), 2)].into(),
        default_missing_value_interpretation: 1,
        rows: Some(rows),
    }
}

fn our_request(rows: Rows) -> AppendRowsRequest {
    AppendRowsRequest {
        write_stream: "s".to_owned(),
        offset: Some(0),
        trace_id: "a:b".to_owned(),
        missing_value_interpretations: [("c".to_owned(), MissingValueInterpretation::DefaultValue as i32)]
            .into(),
        default_missing_value_interpretation: MissingValueInterpretation::NullValue as i32,
        rows: Some(rows),
        ..AppendRowsRequest::default()
    }
}

/// Both encode to the same bytes, and each reads the other's.
fn same(theirs: &google::AppendRowsRequest, ours: &AppendRowsRequest) {
    assert_eq!(theirs.encode_to_vec(), ours.encode_to_vec());
    assert_eq!(
        AppendRowsRequest::decode(theirs.encode_to_vec().as_slice()).unwrap(),
        *ours
    );
    assert_eq!(
        google::AppendRowsRequest::decode(ours.encode_to_vec().as_slice()).unwrap(),
        *theirs
    );
}

#[test]
fn requests_with_rows_of_either_format_are_googles() {
    let rows = vec![Bytes::from_static(b"\x08\x01"), Bytes::new()];
    let theirs = google::append_rows_request::ProtoData {
        writer_schema: Some(google::ProtoSchema {
            proto_descriptor: Some(descriptor()),
        }),
        rows: Some(google::ProtoRows {
            serialized_rows: rows.clone(),
        }),
    };
    let ours = ProtoData {
        writer_schema: Some(ProtoSchema {
            proto_descriptor: descriptor().encode_to_vec().into(),
        }),
        rows: Some(ProtoRows {
            serialized_rows: rows,
        }),
    };
    same(
        &google_request(google::append_rows_request::Rows::ProtoRows(theirs)),
        &our_request(Rows::ProtoRows(ours)),
    );
    let arrow = ArrowData {
        writer_schema: Some(ArrowSchema {
            serialized_schema: Bytes::from_static(b"schema"),
        }),
        rows: Some(ArrowRecordBatch {
            serialized_record_batch: Bytes::from_static(b"rows"),
            ..ArrowRecordBatch::default()
        }),
    };
    same(
        &google_request(google::append_rows_request::Rows::ArrowRows(arrow.clone())),
        &our_request(Rows::ArrowRows(arrow)),
    );
}

#[test]
fn an_extension_in_a_descriptor_arrives() {
    // Row { n = 1, with FieldOptions { [454943157]: "über" } }.
    let mut options = Vec::new();
    prost::encoding::string::encode(454_943_157, &"über".to_owned(), &mut options);
    let mut field = descriptor().field[0].encode_to_vec();
    prost::encoding::bytes::encode(8, &options, &mut field);
    let mut row = Vec::new();
    prost::encoding::bytes::encode(2, &field, &mut row);
    let sent = our_request(Rows::ProtoRows(ProtoData {
        writer_schema: Some(ProtoSchema {
            proto_descriptor: row.clone().into(),
        }),
        rows: None,
    }));
    let Some(Rows::ProtoRows(data)) = AppendRowsRequest::decode(sent.encode_to_vec().as_slice())
        .unwrap()
        .rows
    else {
        panic!("no protobuf rows");
    };
    assert_eq!(data.writer_schema.unwrap().proto_descriptor, row);
}

#[test]
fn rows_and_batches_are_slices_of_the_request_and_no_copies() {
    let batch = ArrowRecordBatch {
        serialized_record_batch: vec![7; 1000].into(),
        ..ArrowRecordBatch::default()
    };
    let sent = our_request(Rows::ArrowRows(ArrowData {
        writer_schema: None,
        rows: Some(batch),
    }));
    let message = Bytes::from(sent.encode_to_vec());
    let Some(Rows::ArrowRows(data)) = AppendRowsRequest::decode(message.clone()).unwrap().rows else {
        panic!("no Arrow rows");
    };
    let body = data.rows.unwrap().serialized_record_batch;
    assert!(message.as_ptr_range().contains(&body.as_ptr()));
    assert_eq!(body.len(), 1000);
}
