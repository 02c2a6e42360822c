//! The embedded host: an SQL file runs on one machine, with sources, barriers, the sink, and a checkpoint store.
//!
//! [`Pipeline::load`] reads the file, [`run()`] runs it. The host drives the sink through its `SinkOperator` interface as the engine would, and keeps
//! its side of that contract: a checkpoint is durable before it is committed, and confirmed before the next one is completed.

mod coordinator;
mod exec;
mod sources;
mod sql;
pub mod store;

pub use coordinator::{
    CheckpointRecord, Control, FailureRecord, History, HistoryRecord, HostConfig, HostError, Progress,
    SinkFactory, Start, Step, Summary, run,
};
pub use exec::QueryError;
pub use sources::{
    BadData, Compression, CsvOptions, FileFormat, FilesystemConfig, Format, ImpulseConfig, SingleFileConfig,
    SourceConfig, SourceError, describe_position,
};
pub use sql::{
    EXTENSION_NAME, JSON_EXTENSION, Pipeline, PipelineError, PipelineErrors, Place, SinkTable, SourceTable,
    SqlOption, is_json, sql_name,
};
