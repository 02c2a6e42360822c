//! A sink over BUFFERED streams in memory: rows are pending until a commit flushes them. It checks what a host must keep to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bigquery_sink::{
    Barrier, CloseReason, CommitReplay, Committed, Epoch, Prepared, Restored, RowCount, SinkError,
    SinkOperator, SubtaskIndex, Task,
};
use bigquery_sink_pipeline::store::{StoreLocation, TakeOver};
use bigquery_sink_pipeline::{Control, HostConfig, HostError, Pipeline, SinkFactory, Step, Summary, run};
use bytes::Bytes;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tokio::sync::Notify;

/// The error a call of the sink is to give.
pub(crate) type Fault = Arc<dyn Fn(&Call) -> Option<SinkError> + Send + Sync>;

/// A call about to be carried out, numbered over all subtasks and attempts from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) subtask: u32,
    pub(crate) number: usize,
}

/// The table: streams of rows, each with a flush cursor.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) streams: BTreeMap<String, Stream>,
    /// Checkpoints the host declared complete; nothing else may be flushed.
    pub(crate) completed: BTreeSet<u64>,
    /// Commits that are recorded as confirmed.
    pub(crate) marked: BTreeSet<u64>,
    pub(crate) steps: Vec<Step>,
    pub(crate) calls: Vec<Call>,
    pub(crate) closes: Vec<CloseReason>,
    pub(crate) replays: Vec<(u64, CommitReplay)>,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) rows: Vec<String>,
    pub(crate) flushed: usize,
}

/// A world in which hosts are run and killed.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) table: Arc<Mutex<Table>>,
    pub(crate) fault: Option<Fault>,
    /// The call that never returns.
    pub(crate) hangs: Option<&'static str>,
    /// Which rows are told of as dead letters.
    pub(crate) refuses: fn(&str) -> bool,
    pub(crate) state: PathBuf,
    pub(crate) parallelism: u32,
    pub(crate) change: Arc<dyn Fn(&mut HostConfig) + Send + Sync>,
}

impl World {
    pub(crate) fn new(state: &Path, parallelism: u32) -> Self {
        Self {
            table: Arc::default(),
            fault: None,
            hangs: None,
            refuses: |_| false,
            state: state.to_owned(),
            parallelism,
            change: Arc::new(|_| {}),
        }
    }

    /// Every visible row, sorted; a row seen twice is there twice.
    pub(crate) fn visible(&self) -> Vec<String> {
        let table = self.table.lock().unwrap();
        let mut rows: Vec<_> = table
            .streams
            .values()
            .flat_map(|stream| stream.rows[..stream.flushed].to_vec())
            .collect();
        rows.sort();
        rows
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.table.lock().unwrap().steps.clone()
    }

    fn config(&self, freeze: impl Fn(Step) -> bool + Send + Sync + 'static) -> HostConfig {
        let mut config = HostConfig::new(StoreLocation::Folder(self.state.clone()));
        config.parallelism = self.parallelism;
        config.checkpoint_interval = std::time::Duration::from_millis(100);
        config.wall_clock = Arc::new(|| 1_000_000);
        config.freeze = Some(Arc::new(freeze));
        (self.change)(&mut config);
        config
    }

    /// Runs to the end.
    pub(crate) async fn run(&self, pipeline: &Pipeline, control: Control) -> Result<Summary, HostError> {
        let table = Arc::clone(&self.table);
        let config = self.config(move |step| {
            table.lock().unwrap().step(step);
            false
        });
        run(pipeline, config, Arc::new(self.clone()), control).await
    }

    /// Runs to the `at`th step (from 0) and kills the host there; true if the job ended before.
    pub(crate) async fn run_and_kill(&self, pipeline: &Pipeline, at: usize) -> bool {
        let frozen = Arc::new(Notify::new());
        let (table, notify) = (Arc::clone(&self.table), Arc::clone(&frozen));
        let before = self.steps().len();
        let config = self.config(move |step| {
            let mut table = table.lock().unwrap();
            table.step(step);
            let here = table.steps.len() - before == at + 1;
            if here {
                notify.notify_one();
            }
            here
        });
        tokio::select! {
            biased;
            ended = run(pipeline, config, Arc::new(self.clone()), Control::new()) => {
                ended.unwrap();
                true
            }
            () = frozen.notified() => false,
        }
    }

    /// The same world, with hosts that take the state over from one that holds it.
    pub(crate) fn taking_over(&self) -> Self {
        Self {
            change: Arc::new(|config| config.take_over = TakeOver::Force),
            ..self.clone()
        }
    }
}

impl Table {
    fn step(&mut self, step: Step) {
        match step {
            Step::Completed(epoch) => drop(self.completed.insert(epoch.0)),
            Step::Marked(epoch) => drop(self.marked.insert(epoch.0)),
            // N+1 is complete only after the commit of N is confirmed.
            Step::Collected(epoch) => assert!(
                epoch.0 == 1 || self.confirmed(epoch.0 - 1),
                "{epoch} before its predecessor"
            ),
            _ => {}
        }
        self.steps.push(step);
    }

    /// A host killed between the record and its step leaves none; the next host then restores it as confirmed.
    fn confirmed(&self, epoch: u64) -> bool {
        self.marked.contains(&epoch) || self.replays.contains(&(epoch, CommitReplay::Confirmed))
    }
}

impl SinkFactory for World {
    fn create(&self, task: Task, columns: SchemaRef) -> Result<Box<dyn SinkOperator>, SinkError> {
        let sink = FakeSink {
            world: self.clone(),
            task,
            columns,
            stream: None,
            reported: 0,
        };
        Ok(Box::new(sink))
    }

    fn streams_created(&self) -> u64 {
        self.table.lock().unwrap().streams.len() as u64
    }
}

struct FakeSink {
    world: World,
    task: Task,
    columns: SchemaRef,
    stream: Option<String>,
    /// Rows of the stream that earlier checkpoints cover.
    reported: usize,
}

impl FakeSink {
    async fn call(&mut self, name: &'static str) -> Result<(), SinkError> {
        if self.world.hangs == Some(name) {
            std::future::pending::<()>().await;
        }
        let call = {
            let mut table = self.world.table.lock().unwrap();
            let number = table.calls.iter().filter(|call| call.name == name).count();
            let call = Call {
                name,
                subtask: self.task.subtask.0,
                number,
            };
            table.calls.push(call.clone());
            call
        };
        self.world
            .fault
            .as_ref()
            .and_then(|fault| fault(&call))
            .map_or(Ok(()), Err)
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[async_trait]
impl SinkOperator for FakeSink {
    async fn on_start(&mut self, restored: Option<Restored>) -> Result<(), SinkError> {
        self.call("on_start").await?;
        if let Some(restored) = restored {
            for (index, state) in &restored.states {
                assert!(
                    text(state).starts_with(&format!("epoch {} subtask {index} ", restored.epoch)),
                    "{state:?}"
                );
            }
            self.world
                .table
                .lock()
                .unwrap()
                .replays
                .push((restored.epoch.0, restored.replay));
        }
        Ok(())
    }

    async fn process_batch(&mut self, batch: RecordBatch) -> Result<(), SinkError> {
        assert_eq!(batch.schema(), self.columns);
        assert!(batch.num_rows() > 0);
        self.call("process_batch").await?;
        let mut table = self.world.table.lock().unwrap();
        let (started, subtask) = (self.task.started_at_micros, self.task.subtask);
        let count = table.streams.len();
        let name = self
            .stream
            .get_or_insert_with(|| format!("{started}-{subtask}-{count}"));
        let stream = table.streams.entry(name.clone()).or_default();
        stream.rows.extend(rows(&batch));
        Ok(())
    }

    async fn handle_checkpoint(&mut self, barrier: Barrier) -> Result<Prepared, SinkError> {
        self.call("handle_checkpoint").await?;
        let table = self.world.table.lock().unwrap();
        let (mut commit, from) = (String::new(), self.reported);
        let mut refused = 0;
        if let Some(name) = &self.stream {
            let rows = &table.streams[name].rows;
            self.reported = rows.len();
            refused = rows[from..]
                .iter()
                .filter(|row| (self.world.refuses)(row))
                .count();
            if self.reported > from {
                commit = format!("{name} {from} {}", self.reported);
            }
        }
        let state = format!(
            "epoch {} subtask {} rows {}",
            barrier.epoch, self.task.subtask, self.reported
        );
        let rows = RowCount((self.reported - from) as u64);
        Ok(Prepared {
            state: state.into(),
            commit: commit.into(),
            rows,
            dead_letters: RowCount(refused as u64),
        })
    }

    async fn handle_commit(
        &mut self,
        epoch: Epoch,
        commits: &BTreeMap<SubtaskIndex, Bytes>,
    ) -> Result<Committed, SinkError> {
        self.call("handle_commit").await?;
        let mut table = self.world.table.lock().unwrap();
        let mut flushed = 0;
        let replayed = table.replays.contains(&(epoch.0, CommitReplay::Expected));
        assert!(
            table.completed.contains(&epoch.0) || replayed,
            "{epoch} is not complete"
        );
        for (index, commit) in commits {
            let commit = text(commit);
            if index.0 % self.task.parallelism != self.task.subtask.0 || commit.is_empty() {
                continue;
            }
            let parts: Vec<_> = commit.split(' ').collect();
            let (from, to): (usize, usize) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
            let stream = table.streams.get_mut(parts[0]).expect("the stream was created");
            stream.flushed = stream.flushed.max(to);
            flushed += to - from;
        }
        Ok(Committed {
            rows: RowCount(flushed as u64),
        })
    }

    async fn handle_tick(&mut self) -> Result<(), SinkError> {
        self.call("handle_tick").await
    }

    async fn on_close(&mut self, reason: CloseReason) -> Result<(), SinkError> {
        self.world.table.lock().unwrap().closes.push(reason);
        Ok(())
    }
}

/// Each row as text, fields parted by `|`.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let formatters: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let row = |index| {
        formatters
            .iter()
            .map(|f| f.value(index).to_string())
            .collect::<Vec<_>>()
            .join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}
