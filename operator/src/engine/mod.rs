//! The sink under Arroyo: what its connector says and hears, as plain values. The drop-in (`integration/arroyo/`) translates the
//! engine's types into these and back, and does nothing else.
//!
//! The engine's contract is another than [`SinkOperator`](crate::SinkOperator)'s in a few points, which are settled here: a restored state does not say which
//! checkpoint it is of, rows carry a column of the engine's own, a batch does not know what the DDL said of its columns, and a commit
//! has to be acknowledged for each subtask that the engine waits for.

mod columns;
mod form;
mod look;
mod restore;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bigquery_sink_state::{Epoch, SubtaskIndex};
use bytes::Bytes;

use self::columns::Columns;
pub use self::columns::{Declared, TIMESTAMP};
pub use self::form::{Form, is_for_the_connector, profile_form, table_form};
pub use self::look::{look, suggestions};
use crate::error::SinkError;
use crate::host::{Barrier, CloseReason, SinkOperator as _, Task};
use crate::metrics::Metrics;
use crate::options::{SinkOptions, WriteMode};
use crate::sink::{BigQuerySink, Environment};

/// State table with each subtask's state, by subtask.
pub const STATE_TABLE: &str = "s";
/// State table that the engine commits in two phases; it holds nothing but what is to be committed.
pub const COMMIT_TABLE: &str = "c";

/// A state table that the engine is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTable {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Whether the engine says commit for it.
    pub is_committed: bool,
}

/// Who decides about checkpoints (`job-controller`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// The controller: it waits for every subtask that there is.
    Controller,
    /// A worker: it waits for every subtask that there was, also after there are fewer.
    Worker,
}

/// Which subtask this is.
#[derive(Clone, Debug)]
pub struct EngineTask {
    /// As for every host.
    pub task: Task,
    /// Who waits for the acknowledgements.
    pub controller: Controller,
}

/// A subtask's part of a checkpoint, for the state tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Key of the state: the subtask's index.
    pub key: u32,
    /// For [`STATE_TABLE`].
    pub state: Vec<u8>,
    /// For [`COMMIT_TABLE`], if there is one: also for an epoch without rows.
    pub commit: Option<Vec<u8>>,
}

/// One subtask of the sink, as the engine drives it.
#[derive(Debug)]
pub struct EngineSink {
    /// What is wrong with them is told at the start, where it can be told as an error.
    options: Result<Arc<SinkOptions>, String>,
    declared: Declared,
    environment: Option<Environment>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    sink: BigQuerySink,
    columns: Columns,
    subtask: u32,
    parallelism: u32,
    controller: Controller,
    /// The newest checkpoint, where the engine says no commit.
    prepared: Option<(Epoch, Bytes)>,
}

impl EngineSink {
    /// Does nothing: the engine makes sinks to show them, and for subtasks that run elsewhere (T11, T25).
    #[must_use]
    pub fn new(profile: &Form, table: &Form, declared: Declared) -> Self {
        Self {
            options: options(profile, table, &declared).map(Arc::new),
            declared,
            environment: None,
            running: None,
        }
    }

    /// With other surroundings than those that the options ask for, for tests.
    #[must_use]
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// The table that rows go to; empty if the options do not say.
    #[must_use]
    pub fn table(&self) -> String {
        self.options
            .as_ref()
            .map_or_else(|_| String::new(), |options| options.table.to_string())
    }

    /// Whether rows become visible with a commit. The engine's `is_committing` and the flag of the state table must agree (T5), so
    /// that both come from here.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.options
            .as_ref()
            .map_or(true, |options| is_committing(options.mode))
    }

    /// The state tables to keep.
    #[must_use]
    pub fn tables(&self) -> Vec<StateTable> {
        let mut tables = vec![StateTable {
            name: STATE_TABLE,
            description: "write streams of each subtask",
            is_committed: false,
        }];
        if self.is_committing() {
            tables.push(StateTable {
                name: COMMIT_TABLE,
                description: "rows to make visible",
                is_committed: true,
            });
        }
        tables
    }

    /// Starts, after a crash with what [`STATE_TABLE`] holds: the states of all subtasks that there were. `input` is what batches look
    /// like. Takes half a minute at most, where the engine allows two (T11).
    ///
    /// # Errors
    /// What is wrong with the options, the states, the table or the columns.
    pub async fn on_start(
        &mut self,
        task: EngineTask,
        input: &SchemaRef,
        states: &HashMap<u32, Vec<u8>>,
    ) -> Result<(), SinkError> {
        let options = match &self.options {
            Ok(options) => Arc::clone(options),
            Err(problems) => return Err(SinkError::user(problems.clone())),
        };
        let restored = restore::restored(states)?;
        let environment = match self.environment.take() {
            Some(environment) => environment,
            None => Environment::new(&options, Metrics::of_default_registry())?,
        };
        let has_timestamp = input.column_with_name(TIMESTAMP).is_some()
            && has_column(TIMESTAMP, &options, &environment).await?;
        let columns = Columns::new(input, &self.declared, has_timestamp);
        let EngineTask { task, controller } = task;
        let (subtask, parallelism) = (task.subtask.0, task.parallelism);
        let mut sink = BigQuerySink::new(options, columns.schema(), task, environment);
        sink.on_start(restored).await?;
        self.running = Some(Running {
            sink,
            columns,
            subtask,
            parallelism,
            controller,
            prepared: None,
        });
        Ok(())
    }

    /// Takes rows, without the engine's own column unless the table has it (T18).
    ///
    /// # Errors
    /// As [`SinkOperator::process_batch`](crate::SinkOperator::process_batch).
    pub async fn process_batch(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let running = self.running()?;
        let batch = running.columns.of(batch)?;
        running.sink.process_batch(batch).await
    }

    /// What of this subtask is to be in checkpoint `epoch`: all of it anew each time, since the engine forgets what is not inserted
    /// again (T7).
    ///
    /// # Errors
    /// As [`SinkOperator::handle_checkpoint`](crate::SinkOperator::handle_checkpoint).
    pub async fn handle_checkpoint(&mut self, epoch: u32, then_stop: bool) -> Result<Part, SinkError> {
        let is_committing = self.is_committing();
        let running = self.running()?;
        if let Some((epoch, commit)) = running.prepared.take() {
            // The next barrier comes only when the checkpoint before is complete, and nobody will say commit.
            let own = BTreeMap::from([(SubtaskIndex(running.subtask), commit)]);
            running.sink.handle_commit(epoch, &own).await?;
        }
        let epoch = Epoch(epoch.into());
        let prepared = running
            .sink
            .handle_checkpoint(Barrier { epoch, then_stop })
            .await?;
        if !is_committing {
            running.prepared = Some((epoch, prepared.commit.clone()));
        }
        Ok(Part {
            key: running.subtask,
            state: prepared.state.into(),
            commit: is_committing.then(|| prepared.commit.into()),
        })
    }

    /// Publishes this subtask's share of checkpoint `epoch`, from the message's data alone (T3, T8, T9). Returns the subtasks for which the commit
    /// is to be acknowledged, now that it is done (T4).
    ///
    /// # Errors
    /// As [`SinkOperator::handle_commit`](crate::SinkOperator::handle_commit).
    pub async fn handle_commit(
        &mut self,
        epoch: u32,
        data: &HashMap<String, HashMap<u32, Vec<u8>>>,
    ) -> Result<Vec<u32>, SinkError> {
        let running = self.running()?;
        let Some(entries) = data.get(COMMIT_TABLE) else {
            return Err(SinkError::internal(format!(
                "the engine said commit for checkpoint {epoch} without the data of state table '{COMMIT_TABLE}'"
            )));
        };
        let commits = entries.iter();
        let commits = commits.map(|(&subtask, entry)| (SubtaskIndex(subtask), Bytes::copy_from_slice(entry)));
        running
            .sink
            .handle_commit(Epoch(epoch.into()), &commits.collect())
            .await?;
        let (subtask, parallelism) = (running.subtask, running.parallelism);
        Ok(acknowledged(
            subtask,
            parallelism,
            running.controller,
            entries.keys().copied(),
        ))
    }

    /// Tells a failure of the sink's own task without waiting for rows. To be called about once a second.
    ///
    /// # Errors
    /// As [`SinkOperator::handle_tick`](crate::SinkOperator::handle_tick).
    pub async fn handle_tick(&mut self) -> Result<(), SinkError> {
        self.running()?.sink.handle_tick().await
    }

    /// Ends. Only the end of data publishes anything (T1, T2).
    ///
    /// # Errors
    /// As [`SinkOperator::on_close`](crate::SinkOperator::on_close).
    pub async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError> {
        self.running()?.sink.on_close(reason).await
    }

    fn running(&mut self) -> Result<&mut Running, SinkError> {
        let none = || SinkError::internal("the sink was called before its start");
        self.running.as_mut().ok_or_else(none)
    }
}

/// The subtasks for which a subtask acknowledges a commit with these entries: itself, and where a worker is the controller, which waits
/// for those that wrote the entries, also subtasks that are gone, whose entries it has published.
#[must_use]
pub fn acknowledged(
    own: u32,
    parallelism: u32,
    controller: Controller,
    entries: impl Iterator<Item = u32>,
) -> Vec<u32> {
    let mut subtasks = vec![own];
    if controller == Controller::Worker {
        let gone = entries.filter(|old| *old >= parallelism && old % parallelism == own);
        subtasks.extend(gone);
        subtasks.sort_unstable();
    }
    subtasks
}

fn is_committing(mode: WriteMode) -> bool {
    match mode {
        WriteMode::ExactlyOnce => true,
        WriteMode::AtLeastOnce => false,
    }
}

/// The sink's options from both forms and the DDL; every problem, one to a line.
///
/// # Errors
/// What is wrong with them.
pub fn options(profile: &Form, table: &Form, declared: &Declared) -> Result<SinkOptions, String> {
    let mut given = profile.options()?;
    given.extend(table.options()?);
    let lines = |problems: Vec<_>| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("\n")
    };
    let mut options = SinkOptions::parse(&given).map_err(lines)?;
    options.primary_key.clone_from(&declared.primary_key);
    if let Some(columns) = declared.schema() {
        options.check_columns(&columns).map_err(lines)?;
    }
    Ok(options)
}

async fn has_column(name: &str, options: &SinkOptions, environment: &Environment) -> Result<bool, SinkError> {
    let table = BigQuerySink::table_columns(options, environment).await?;
    let mut fields = table.iter().flat_map(|table| &table.fields);
    Ok(fields.any(|field| field.name.eq_ignore_ascii_case(name)))
}
