//! `checkpoint`: what a state directory holds. It only looks: a `run` may hold the directory meanwhile.

use bigquery_sink_pipeline::describe_position;
use bigquery_sink_pipeline::store::{
    CheckpointInfo, Manifest, Store, StoreError, StoreLocation, SubtaskCheckpoint,
};
use bigquery_sink_state::envelope::EnvelopeError;
use bigquery_sink_state::{
    BigQueryCommitInfo, BigQuerySinkState, CommitList, StreamName, StreamState, SubtaskState,
};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use crate::args::{CheckpointArguments, CheckpointCommand};
use crate::failure::Failure;
use crate::output::print;
use crate::table::render;

const LIST_HEADER: [&str; 8] = [
    "epoch",
    "lineage",
    "generation",
    "complete",
    "committed",
    "created",
    "parallelism",
    "rows",
];
const STREAM_HEADER: [&str; 6] = [
    "subtask",
    "incarnation",
    "stream",
    "next offset",
    "commit",
    "rows",
];
const NONE: &str = "-";

pub(crate) async fn checkpoint(arguments: CheckpointArguments) -> Result<(), Failure> {
    match arguments.command {
        CheckpointCommand::List { state_dir, json } => list(&state_dir, json).await,
        CheckpointCommand::Show {
            state_dir,
            epoch,
            json,
        } => show(&state_dir, epoch, json).await,
    }
}

async fn list(state_dir: &str, as_json: bool) -> Result<(), Failure> {
    let checkpoints = read(state_dir).await?;
    if as_json {
        let lines = checkpoints.iter().map(|info| format!("{}\n", summary(info)));
        print(&lines.collect::<String>())?;
    } else if checkpoints.is_empty() {
        print(&format!("no checkpoints yet in {state_dir}\n"))?;
    } else {
        let table = render(LIST_HEADER.map(str::to_owned), checkpoints.iter().map(line));
        print(&format!("{table}\n"))?;
    }
    damaged(&checkpoints)
}

async fn show(state_dir: &str, epoch: Option<u64>, as_json: bool) -> Result<(), Failure> {
    let checkpoints = read(state_dir).await?;
    let info = choose(&checkpoints, epoch).ok_or_else(|| nothing_to_show(state_dir, &checkpoints, epoch))?;
    let manifest = match &info.manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            if as_json {
                print(&format!("{}\n", summary(info)))?;
            }
            return Err(Failure::running(format!(
                "checkpoint {} cannot be shown: {error}",
                info.epoch
            )));
        }
    };
    let subtasks: Vec<Subtask> = manifest.subtasks.iter().map(Subtask::decode).collect();
    if as_json {
        print(&format!("{}\n", whole(info, manifest, &subtasks)))?;
    } else {
        print(&page(info, manifest, &subtasks))?;
    }
    let wrong: Vec<String> = subtasks
        .iter()
        .enumerate()
        .flat_map(|(index, subtask)| {
            subtask
                .damage()
                .map(move |damage| format!("subtask {index}: {damage}"))
        })
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::running(format!(
        "checkpoint file {} is damaged: {}",
        info.file,
        wrong.join("; ")
    )))
}

async fn read(state_dir: &str) -> Result<Vec<CheckpointInfo>, Failure> {
    let failed = |error: StoreError| match error {
        StoreError::Location { .. } => Failure::usage(error.to_string()),
        _ => Failure::running(error.to_string()).because(&error),
    };
    let location = StoreLocation::parse(state_dir).map_err(failed)?;
    let store = Store::open_existing(&location).map_err(failed)?;
    let mut checkpoints = store.list().await.map_err(failed)?;
    let unreadable = |info: &CheckpointInfo| info.manifest.is_err();
    if checkpoints.iter().any(unreadable) {
        // A host may delete an old checkpoint while it is being read. Damage is what is there a second time.
        let before: Vec<String> = checkpoints
            .into_iter()
            .filter(unreadable)
            .map(|info| info.file)
            .collect();
        checkpoints = store.list().await.map_err(failed)?;
        checkpoints.retain(|info| !unreadable(info) || before.contains(&info.file));
    }
    Ok(checkpoints)
}

/// The newest lineage's, and the complete one if a broken attempt left another of the same number.
fn choose(checkpoints: &[CheckpointInfo], epoch: Option<u64>) -> Option<&CheckpointInfo> {
    let wanted = |info: &&CheckpointInfo| match epoch {
        Some(epoch) => info.epoch.0 == epoch,
        None => info.complete,
    };
    checkpoints
        .iter()
        .filter(wanted)
        .max_by_key(|info| (info.lineage, info.epoch, info.complete))
}

fn nothing_to_show(state_dir: &str, checkpoints: &[CheckpointInfo], epoch: Option<u64>) -> Failure {
    let there: Vec<String> = checkpoints.iter().map(|info| info.epoch.to_string()).collect();
    let message = match (epoch, there.is_empty()) {
        (_, true) => format!("no checkpoints yet in {state_dir}"),
        (Some(epoch), false) => format!(
            "there is no checkpoint {epoch} in {state_dir}; there are {}",
            there.join(", ")
        ),
        (None, false) => format!(
            "no checkpoint in {state_dir} is complete; name one with --epoch: {}",
            there.join(", ")
        ),
    };
    Failure::usage(message)
}

/// The error that names every damaged checkpoint, if there is one.
fn damaged(checkpoints: &[CheckpointInfo]) -> Result<(), Failure> {
    let wrong: Vec<String> = checkpoints
        .iter()
        .filter_map(|info| {
            Some(format!(
                "\n  epoch {}: {}",
                info.epoch,
                info.manifest.as_ref().err()?
            ))
        })
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let (count, all) = (wrong.len(), checkpoints.len());
    let verb = if count == 1 { "is" } else { "are" };
    Err(Failure::running(format!(
        "{count} of {all} checkpoints {verb} damaged:{}",
        wrong.concat()
    )))
}

/// One line of the list.
fn line(info: &CheckpointInfo) -> [String; 8] {
    let yes = |flag| if flag { "yes" } else { "no" }.to_owned();
    let (generation, created, parallelism, rows) = match &info.manifest {
        Ok(manifest) => (
            manifest.generation.to_string(),
            created(manifest),
            manifest.parallelism.to_string(),
            rows(manifest).to_string(),
        ),
        Err(_) => (NONE.into(), "damaged".into(), NONE.into(), NONE.into()),
    };
    [
        info.epoch.to_string(),
        info.lineage.to_string(),
        generation,
        yes(info.complete),
        yes(info.committed),
        created,
        parallelism,
        rows,
    ]
}

/// What `list --json` says of a checkpoint; `show --json` says it too.
fn summary(info: &CheckpointInfo) -> Value {
    let mut value = json!({
        "epoch": info.epoch.0,
        "lineage": info.lineage,
        "complete": info.complete,
        "committed": info.committed,
        "file": info.file,
    });
    match &info.manifest {
        Ok(manifest) => {
            value["generation"] = manifest.generation.into();
            value["created"] = created(manifest).into();
            value["parallelism"] = manifest.parallelism.into();
            value["rows"] = rows(manifest).into();
        }
        Err(error) => value["damaged"] = error.to_string().into(),
    }
    value
}

fn created(manifest: &Manifest) -> String {
    let time = i64::try_from(manifest.created_at_micros)
        .ok()
        .and_then(DateTime::from_timestamp_micros);
    time.map_or_else(
        || format!("{} µs", manifest.created_at_micros),
        |time| time.to_rfc3339_opts(SecondsFormat::Micros, true),
    )
}

/// Rows that become visible with this checkpoint.
fn rows(manifest: &Manifest) -> u64 {
    manifest.subtasks.iter().map(|subtask| subtask.rows).sum()
}

/// A subtask's part, as far as it can be read.
struct Subtask {
    state: Result<SubtaskState, EnvelopeError>,
    commit: Result<CommitList, EnvelopeError>,
}

impl Subtask {
    fn decode(stored: &SubtaskCheckpoint) -> Self {
        Self {
            state: SubtaskState::decode(&stored.state),
            commit: CommitList::decode(&stored.commit),
        }
    }

    fn damage(&self) -> impl Iterator<Item = &EnvelopeError> {
        self.state
            .as_ref()
            .err()
            .into_iter()
            .chain(self.commit.as_ref().err())
    }

    fn commits(&self) -> &[BigQueryCommitInfo] {
        self.commit.as_ref().map_or(&[], |list| &list.0)
    }

    /// One line a stream: those of the state, then those that only the commit list has.
    fn lines(&self, index: usize) -> Vec<[String; 6]> {
        let streams: Vec<(&StreamName, Option<u64>)> = match &self.state {
            Ok(state) => state
                .streams
                .iter()
                .map(|stream| (&stream.state.stream, next_offset(stream)))
                .collect(),
            Err(_) => Vec::new(),
        };
        let left = self
            .commits()
            .iter()
            .filter(|commit| !streams.iter().any(|(name, _)| **name == commit.stream))
            .map(|commit| (&commit.stream, None));
        let incarnation = match &self.state {
            Ok(state) => state.incarnation.to_string(),
            Err(_) => "damaged".to_owned(),
        };
        let line = |(name, next): (&StreamName, Option<u64>)| {
            let commit = self.commits().iter().find(|commit| commit.stream == *name);
            [
                index.to_string(),
                incarnation.clone(),
                short(name).to_owned(),
                next.map_or_else(|| NONE.to_owned(), |next| next.to_string()),
                commit.map_or_else(
                    || NONE.to_owned(),
                    |commit| format!("{} to {}", commit.from_offset, commit.flush_offset),
                ),
                commit.map_or(0, |commit| commit.rows().0).to_string(),
            ]
        };
        let lines: Vec<_> = streams.iter().copied().chain(left).map(line).collect();
        if lines.is_empty() {
            let none = || NONE.to_owned();
            return vec![[
                index.to_string(),
                incarnation,
                none(),
                none(),
                none(),
                "0".to_owned(),
            ]];
        }
        lines
    }

    fn json(&self, index: usize) -> Value {
        let mut value = json!({ "subtask": index });
        match &self.state {
            Ok(state) => {
                value["incarnation"] = state.incarnation.0.into();
                value["table"] = state.table.as_str().into();
                value["mode"] = state.mode().to_string().into();
                let stream = |stream: &StreamState| json!({ "stream": stream.state.stream.0, "next_offset": next_offset(stream) });
                value["streams"] = state.streams.iter().map(stream).collect();
            }
            Err(error) => value["state_damaged"] = error.to_string().into(),
        }
        match &self.commit {
            Ok(list) => {
                let commit = |commit: &BigQueryCommitInfo| {
                    json!({
                        "stream": commit.stream.0,
                        "from_offset": commit.from_offset.0,
                        "flush_offset": commit.flush_offset.0,
                    })
                };
                value["commit"] = list.0.iter().map(commit).collect();
            }
            Err(error) => value["commit_damaged"] = error.to_string().into(),
        }
        value
    }
}

/// A default stream has none.
fn next_offset(stream: &StreamState) -> Option<u64> {
    let BigQuerySinkState {
        stream, next_offset, ..
    } = &stream.state;
    (!stream.is_default()).then_some(next_offset.0)
}

/// The stream's own id; its table is named above.
fn short(stream: &StreamName) -> &str {
    stream.0.rsplit_once("/streams/").map_or(&stream.0, |(_, id)| id)
}

/// Everything, for machines.
fn whole(info: &CheckpointInfo, manifest: &Manifest, subtasks: &[Subtask]) -> Value {
    let mut value = summary(info);
    value["rows_read"] = manifest.rows_read.into();
    value["rows_committed"] = manifest.rows_committed.into();
    value["rows_rejected"] = manifest.rows_rejected.into();
    value["input_ended"] = manifest.input_ended.into();
    let subtasks = subtasks.iter().enumerate();
    value["subtasks"] = subtasks.map(|(index, subtask)| subtask.json(index)).collect();
    let source = |source| {
        let (name, position) = describe_position(source);
        json!({ "source": name, "position": position })
    };
    value["sources"] = manifest.sources.iter().map(source).collect();
    value
}

/// Everything, for people.
fn page(info: &CheckpointInfo, manifest: &Manifest, subtasks: &[Subtask]) -> String {
    let state = match (info.complete, info.committed) {
        (false, _) => "not complete: it does not count",
        (true, false) => "complete, its commit is not confirmed",
        (true, true) => "complete and committed",
    };
    let table = subtasks.iter().find_map(|subtask| subtask.state.as_ref().ok());
    let table = table.map_or(NONE, |state| state.table.as_str());
    let ended = if manifest.input_ended {
        ", the input has ended"
    } else {
        ""
    };
    let sources = manifest.sources.iter().map(|source| {
        let (name, position) = describe_position(source);
        format!("source       {name}: {position}\n")
    });
    let lines = subtasks
        .iter()
        .enumerate()
        .flat_map(|(index, subtask)| subtask.lines(index));
    format!(
        "checkpoint   {} ({state})\n\
         file         {}\n\
         created      {}\n\
         lineage      {}, generation {}, parallelism {}\n\
         table        {table}\n\
         rows         {} with this checkpoint; in all {} read, {} visible, {} rejected{ended}\n\
         {}{}\n",
        info.epoch,
        info.file,
        created(manifest),
        manifest.lineage,
        manifest.generation,
        manifest.parallelism,
        rows(manifest),
        manifest.rows_read,
        manifest.rows_committed,
        manifest.rows_rejected,
        sources.collect::<String>(),
        render(STREAM_HEADER.map(str::to_owned), lines),
    )
}
