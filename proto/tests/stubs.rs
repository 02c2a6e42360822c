//! The generated client talks to the generated server over an in-memory pipe.

#![allow(clippy::unwrap_used)] // helpers are tests too

use std::pin::Pin;

use bigquery_write_proto::wire::append_rows_response::{AppendResult, Response as AppendAnswer};
use bigquery_write_proto::wire::{
    AppendRowsRequest, AppendRowsResponse, BatchCommitWriteStreamsRequest, BatchCommitWriteStreamsResponse,
    BigQueryWrite, BigQueryWriteClient, BigQueryWriteServer, CreateWriteStreamRequest,
    FinalizeWriteStreamRequest, FinalizeWriteStreamResponse, FlushRowsRequest, FlushRowsResponse,
    GetWriteStreamRequest, ROUTING_HEADER, WriteStream, write_stream,
};
use hyper_util::rt::TokioIo;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

/// Answers each call with what it was asked.
struct Echo;

type Answers = Pin<Box<dyn Stream<Item = Result<AppendRowsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl BigQueryWrite for Echo {
    type AppendRowsStream = Answers;

    async fn create_write_stream(
        &self,
        request: Request<CreateWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        let request = request.into_inner();
        let mut stream = request.write_stream.unwrap_or_default();
        stream.name = format!("{}/streams/one", request.parent);
        Ok(Response::new(stream))
    }

    async fn append_rows(
        &self,
        request: Request<Streaming<AppendRowsRequest>>,
    ) -> Result<Response<Answers>, Status> {
        assert_eq!(request.metadata().get(ROUTING_HEADER).unwrap(), "write_stream=s");
        let answers = request.into_inner().map(|request| {
            request.map(|request| AppendRowsResponse {
                write_stream: request.write_stream,
                response: Some(AppendAnswer::AppendResult(AppendResult {
                    offset: request.offset,
                })),
                ..Default::default()
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_write_stream(
        &self,
        request: Request<GetWriteStreamRequest>,
    ) -> Result<Response<WriteStream>, Status> {
        Err(Status::not_found(request.into_inner().name))
    }

    async fn finalize_write_stream(
        &self,
        request: Request<FinalizeWriteStreamRequest>,
    ) -> Result<Response<FinalizeWriteStreamResponse>, Status> {
        Ok(Response::new(FinalizeWriteStreamResponse {
            row_count: request.into_inner().name.len() as i64,
        }))
    }

    async fn batch_commit_write_streams(
        &self,
        _: Request<BatchCommitWriteStreamsRequest>,
    ) -> Result<Response<BatchCommitWriteStreamsResponse>, Status> {
        Err(Status::unimplemented("batch commit"))
    }

    async fn flush_rows(
        &self,
        request: Request<FlushRowsRequest>,
    ) -> Result<Response<FlushRowsResponse>, Status> {
        Ok(Response::new(FlushRowsResponse {
            offset: request.into_inner().offset.unwrap_or(-1),
        }))
    }
}

async fn connect() -> BigQueryWriteClient<tonic::transport::Channel> {
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(
        Server::builder()
            .add_service(BigQueryWriteServer::new(Echo))
            .serve_with_incoming(tokio_stream::once(Ok::<_, std::io::Error>(far))),
    );
    let mut near = Some(near);
    let channel = Endpoint::from_static("http://echo")
        .connect_with_connector(tower::service_fn(move |_| {
            let near = near.take().map(TokioIo::new);
            async move { near.ok_or_else(|| std::io::Error::other("the pipe is used up")) }
        }))
        .await
        .unwrap();
    BigQueryWriteClient::new(channel)
}

#[tokio::test]
async fn unary_calls_carry_messages_and_statuses_both_ways() {
    let mut client = connect().await;
    let created = client
        .create_write_stream(CreateWriteStreamRequest {
            parent: "projects/p/datasets/d/tables/t".to_owned(),
            write_stream: Some(WriteStream {
                r#type: write_stream::Type::Buffered.into(),
                ..Default::default()
            }),
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(created.name, "projects/p/datasets/d/tables/t/streams/one");
    assert_eq!(created.r#type(), write_stream::Type::Buffered);

    let flushed = client
        .flush_rows(FlushRowsRequest {
            write_stream: created.name,
            offset: Some(41),
        })
        .await;
    assert_eq!(flushed.unwrap().into_inner().offset, 41);

    let status = client
        .get_write_stream(GetWriteStreamRequest {
            name: "nobody".to_owned(),
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "nobody"));
}

#[tokio::test]
async fn append_rows_answers_every_request_in_order_and_ends_with_the_requests() {
    let mut client = connect().await;
    let mut requests = Request::new(tokio_stream::iter((0..3).map(|offset| AppendRowsRequest {
        write_stream: format!("s{offset}"),
        offset: Some(offset),
        ..Default::default()
    })));
    requests
        .metadata_mut()
        .insert(ROUTING_HEADER, "write_stream=s".parse().unwrap());
    let answers = client.append_rows(requests).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap()).collect().await;
    assert_eq!(
        answers
            .iter()
            .map(|a| (a.write_stream.as_str(), a.response.clone()))
            .collect::<Vec<_>>(),
        ["s0", "s1", "s2"]
            .into_iter()
            .zip(0..)
            .map(|(name, offset)| {
                (
                    name,
                    Some(AppendAnswer::AppendResult(AppendResult { offset: Some(offset) })),
                )
            })
            .collect::<Vec<_>>()
    );
}
