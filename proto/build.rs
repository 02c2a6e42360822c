//! Generates client and server of `BigQueryWrite` over Google's published message types; no .proto files are kept.

use tonic_build::manual::{Builder, Method, Service};

const CODEC: &str = "tonic_prost::ProstCodec";

fn method(name: &str, route: &str, input: &str, output: &str) -> tonic_build::manual::MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::wire::{input}"))
        .output_type(format!("crate::wire::{output}"))
        .codec_path(CODEC)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let service = Service::builder()
        .package("google.cloud.bigquery.storage.v1")
        .name("BigQueryWrite")
        .method(
            method(
                "create_write_stream",
                "CreateWriteStream",
                "CreateWriteStreamRequest",
                "WriteStream",
            )
            .build(),
        )
        .method(
            method(
                "append_rows",
                "AppendRows",
                "AppendRowsRequest",
                "AppendRowsResponse",
            )
            .client_streaming()
            .server_streaming()
            .build(),
        )
        .method(
            method(
                "get_write_stream",
                "GetWriteStream",
                "GetWriteStreamRequest",
                "WriteStream",
            )
            .build(),
        )
        .method(
            method(
                "finalize_write_stream",
                "FinalizeWriteStream",
                "FinalizeWriteStreamRequest",
                "FinalizeWriteStreamResponse",
            )
            .build(),
        )
        .method(
            method(
                "batch_commit_write_streams",
                "BatchCommitWriteStreams",
                "BatchCommitWriteStreamsRequest",
                "BatchCommitWriteStreamsResponse",
            )
            .build(),
        )
        .method(method("flush_rows", "FlushRows", "FlushRowsRequest", "FlushRowsResponse").build())
        .build();
    Builder::new().compile(&[service]);
}
