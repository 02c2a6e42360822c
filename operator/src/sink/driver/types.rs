//! Whether a table still takes what is written for it. BigQuery tells of a table's columns with a new stream, may tell of an earlier state
//! of them there, and tells a connection only of what changes while it is open.

use std::sync::Arc;
use std::time::Duration;

use bigquery_sink_state::{Code, Fault, Place, StorageCode};
use bigquery_write_proto::names::{StreamName, TableName};
use bigquery_write_proto::rows::Wire;
use bigquery_write_proto::wire::TableSchema;
use tokio::time::timeout;

use super::super::{Environment, translate};
use crate::options::SinkOptions;
use crate::tables;
use crate::transport::{CallError, CreatedStream};

/// Longest wait for the REST API, without which it goes as well.
const LOOK: Duration = Duration::from_secs(10);

/// What is written for a table, and who is to be asked about it.
#[derive(Clone, Debug)]
pub(super) struct Types {
    pub(super) table: TableName,
    pub(super) wire: Arc<Wire>,
    pub(super) options: Arc<SinkOptions>,
    pub(super) environment: Environment,
}

/// Why rows do not go out.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It may pass; the core knows how long to wait for that.
    Fault(Fault),
    /// Columns have another type now: each with both types.
    Retyped(Vec<String>),
}

impl Types {
    /// Creates a stream, whose answer tells of the table.
    pub(super) async fn create(self) -> Result<CreatedStream, Unfit> {
        let created = self.environment.transport.create_stream(&self.table).await?;
        if let Some(schema) = &created.schema {
            self.check(schema).await?;
        }
        Ok(created)
    }

    /// Asks about the table of a stream that has been there for a while.
    pub(super) async fn ask(self, stream: &StreamName) -> Result<(), Unfit> {
        let schema = self.environment.transport.stream_schema(stream).await?;
        self.check(&schema).await
    }

    /// Whether these columns are what is written. They may be those of an earlier time, so that others are asked about a difference.
    async fn check(&self, told: &TableSchema) -> Result<(), Unfit> {
        let told = self.wire.retyped(told);
        if told.is_empty() {
            return Ok(());
        }
        let retyped = self.wire.retyped(&self.look().await?);
        if retyped.is_empty() {
            return Err(Unfit::Fault(self.not_noticed(&told)));
        }
        Err(Unfit::Retyped(retyped))
    }

    /// The table's columns from the REST API, where it may be asked: it knows them first. Otherwise as the start has read them.
    async fn look(&self) -> Result<TableSchema, CallError> {
        let Self {
            table,
            options,
            environment,
            ..
        } = self;
        if environment.asks_rest || tables::administers(options) {
            let columns = tables::columns_of(table, options, environment.tokens.clone());
            if let Ok(Ok(Some(columns))) = timeout(LOOK, columns).await {
                return Ok(columns);
            }
        }
        environment.transport.table_schema(table).await
    }

    /// As the server puts it where a new column has not come to those who append.
    fn not_noticed(&self, told: &[String]) -> Fault {
        Fault {
            code: Code::InvalidArgument,
            storage_code: Some(StorageCode::SchemaMismatchExtraFields),
            place: Place::RpcEnd,
            expected_offset: None,
            row_errors: Vec::new(),
            message: format!(
                "BigQuery told of earlier columns of table {}: {}",
                self.table,
                told.join(", and ")
            ),
        }
    }
}

impl From<CallError> for Unfit {
    fn from(error: CallError) -> Self {
        Self::Fault(translate::call_fault(&error))
    }
}
