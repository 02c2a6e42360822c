//! `run`: a pipeline from its file to its summary.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bigquery_sink::options::{self, RowErrors, SinkOptions};
use bigquery_sink_pipeline::store::{StoreError, StoreLocation, TakeOver};
use bigquery_sink_pipeline::{
    Control, FilesystemConfig, HostConfig, HostError, Pipeline, Progress, SingleFileConfig, SourceConfig,
    Start, Summary,
};
use bigquery_write_emulator::catalog::DatasetRef;
use bigquery_write_emulator::{Config, Emulator};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at};

use crate::args::RunArguments;
use crate::failure::Failure;
use crate::output::print;
use crate::sink::{self, Sinks};
use crate::table::render_batch;
use crate::watch::{Described, Watch, Watched};

/// Rows of the table shown after a run against the emulator in this process.
const SHOWN_ROWS: usize = 10;
/// How often progress is printed where no terminal can show it in place.
const QUIET_PROGRESS: Duration = Duration::from_secs(10);

pub(crate) async fn run(arguments: RunArguments) -> Result<(), Failure> {
    let pipeline = load(&arguments.pipeline)?;
    let local = LocalEmulator::start(&pipeline, &arguments).await?;
    let options = sink::options(&pipeline, local.as_ref().map(LocalEmulator::endpoints))?;
    let described = Described::new(
        &pipeline,
        &options,
        arguments.parallelism,
        arguments.checkpoint_interval,
    );
    let promised = Promised::of(&options);
    let config = config(&pipeline, &arguments, local.as_ref())?;
    let state = config.state.clone();
    let sinks = Arc::new(Sinks::new(options)?);
    // Told before the state is touched: a table that is missing or differs, an address where nobody answers.
    sinks.check(&pipeline.sink.columns).await?;
    let control = Control::new();
    let _watch = match arguments.metrics {
        None => None,
        Some(address) => {
            let metrics = Arc::clone(&sinks.environment.metrics);
            let watched = Watched::new(described, &control, metrics);
            let watch = Watch::start(address, watched).await?;
            eprintln!(
                "the run shows itself at http://{}/, its metrics at /metrics",
                watch.address
            );
            Some(watch)
        }
    };
    let (shutdown, stopped) = (control.shutdown.clone(), control.shutdown.clone());
    let progress = tokio::spawn(show_progress(control.progress.subscribe(), arguments.json));
    let stopper = tokio::spawn(async move {
        stop_signal().await;
        eprintln!("\nstopping with a checkpoint; once more to stop at once");
        shutdown.cancel();
        stop_signal().await;
        std::process::exit(1);
    });
    let result = bigquery_sink_pipeline::run(&pipeline, config, sinks, control).await;
    stopper.abort();
    progress.abort();
    let summary = result
        .map_err(|error| host_failure(&error, local.is_none().then_some(&state), arguments.new_state))?;
    if std::io::stderr().is_terminal() && !arguments.json {
        eprint!("\r\x1b[2K");
    }
    let mut told = report(&arguments, &summary, stopped.is_cancelled(), &promised);
    if let Some(local) = local {
        if !arguments.json {
            told.push_str(&local.first_rows(&pipeline).await?);
        }
        local.emulator.shutdown().await;
    }
    // Last, since a reader that has gone ends the process.
    print(&told)
}

/// Reads the pipeline; its mistakes are the usage's.
pub(crate) fn load(file: &Path) -> Result<Pipeline, Failure> {
    Pipeline::load(file).map_err(|errors| Failure::usage(format!("the pipeline cannot run:\n{errors}")))
}

/// Waits for SIGINT or SIGTERM.
pub(crate) async fn stop_signal() {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = tokio::signal::ctrl_c() => if result.is_err() { std::future::pending().await },
        () = terminate => {}
    }
}

fn config(
    pipeline: &Pipeline,
    arguments: &RunArguments,
    local: Option<&LocalEmulator>,
) -> Result<HostConfig, Failure> {
    let location = match (local, &arguments.state_dir) {
        (Some(local), _) => local.state.path().display().to_string(),
        (None, Some(given)) => given.clone(),
        (None, None) => arguments.pipeline.with_extension("state").display().to_string(),
    };
    let location = StoreLocation::parse(&location).map_err(|error| Failure::usage(error.to_string()))?;
    if matches!(&location, StoreLocation::Url(url) if url.scheme() == "memory") {
        return Err(Failure::usage(
            "--state-dir memory:// keeps nothing beyond this process, and the next run would write every row again; name a folder, or \
             a gs://, s3:// or az:// URL",
        ));
    }
    let mut config = HostConfig::new(location);
    config.parallelism = arguments.parallelism;
    config.checkpoint_interval = arguments.checkpoint_interval;
    config.source_rate = arguments.source_rate;
    if arguments.new_state {
        config.start = Start::Anew;
    }
    if arguments.take_over {
        config.take_over = TakeOver::Force;
    }
    if let (Some(_), SourceConfig::Impulse(_)) = (arguments.source_rate, &pipeline.source.config) {
        let name = &pipeline.source.name;
        return Err(Failure::usage(format!(
            "--source-rate has no use: source '{name}' has a rate of its own, 'event_rate'"
        )));
    }
    if let Some(data) = &arguments.data {
        config.data = replaced_file(pipeline, data)?;
    }
    Ok(config)
}

fn replaced_file(pipeline: &Pipeline, data: &Path) -> Result<BTreeMap<String, PathBuf>, Failure> {
    match &pipeline.source.config {
        SourceConfig::Filesystem(FilesystemConfig { path, .. })
        | SourceConfig::SingleFile(SingleFileConfig { path, .. }) => {
            Ok(BTreeMap::from([(path.clone(), data.to_owned())]))
        }
        SourceConfig::Impulse(_) => {
            let name = &pipeline.source.name;
            Err(Failure::usage(format!(
                "--data has no use: source '{name}' reads no file"
            )))
        }
    }
}

/// What happened, and how to go on where that is as simple as it sounds.
fn host_failure(error: &HostError, state: Option<&StoreLocation>, anew: bool) -> Failure {
    let message = match (error, state) {
        (HostError::Changed { .. } | HostError::Config(_), _)
        | (HostError::Store(StoreError::Location { .. } | StoreError::NotWritable { .. }), _) => {
            return Failure::usage(error.to_string());
        }
        // These say themselves what to do: another host has the state, a file of it is damaged, a stop came before the first row.
        (HostError::Store(_) | HostError::Unconfirmed { .. } | HostError::StoppedUnread { .. }, _)
        | (_, None) => error.to_string(),
        (_, Some(state)) => {
            let again = if anew {
                "the same command without --new-state"
            } else {
                "the same command"
            };
            format!(
                "{error}\nNothing is lost: what is visible stays, and once this is mended {again} goes on from the newest \
                 checkpoint in {state}."
            )
        }
    };
    Failure::running(message).because(error)
}

/// The emulator of `endpoint = 'emulator'`: it lives for this run only, and so does the state.
struct LocalEmulator {
    emulator: Emulator,
    grpc: String,
    http: String,
    state: tempfile::TempDir,
}

impl LocalEmulator {
    async fn start(pipeline: &Pipeline, arguments: &RunArguments) -> Result<Option<Self>, Failure> {
        if !sink::wants_emulator(pipeline) {
            return Ok(None);
        }
        if arguments.state_dir.is_some() {
            return Err(Failure::usage(
                "--state-dir has no use with endpoint = 'emulator': tables and state live for this run only; start \
                 'arroyo-bigquery emulator' and name its 'endpoint.grpc' and 'endpoint.http' instead",
            ));
        }
        // Wrong options are told before anything is started.
        let nowhere = options::Emulator {
            grpc: "http://127.0.0.1:1",
            http: "http://127.0.0.1:1",
        };
        let table = sink::options(pipeline, Some(nowhere))?.table;
        let emulator = Emulator::start(Config::default())
            .await
            .map_err(|error| Failure::running(error.to_string()))?;
        let dataset = DatasetRef::new(table.project().as_str(), table.dataset().as_str());
        emulator
            .handle()
            .create_dataset(&dataset, "US")
            .map_err(|error| Failure::running(error.to_string()))?;
        let state = tempfile::Builder::new()
            .prefix("arroyo-bigquery-")
            .tempdir()
            .map_err(|error| Failure::running(format!("no temporary folder for the state: {error}")))?;
        let (grpc, http) = (
            format!("http://{}", emulator.grpc_addr()),
            format!("http://{}", emulator.http_addr()),
        );
        Ok(Some(Self {
            emulator,
            grpc,
            http,
            state,
        }))
    }

    fn endpoints(&self) -> options::Emulator<'_> {
        options::Emulator {
            grpc: &self.grpc,
            http: &self.http,
        }
    }

    async fn first_rows(&self, pipeline: &Pipeline) -> Result<String, Failure> {
        let table = sink::options(pipeline, Some(self.endpoints()))?.table;
        let (project, dataset) = (table.project().as_str(), table.dataset().as_str());
        let sql = format!(
            "SELECT * FROM `{project}.{dataset}.{}` LIMIT {SHOWN_ROWS}",
            table.table().as_str()
        );
        let output = self.emulator.handle().query(project, None, &sql).await;
        let output =
            output.map_err(|error| Failure::running(format!("the table cannot be read back: {error}")))?;
        let shown = render_batch(&output.rows).map_err(|error| Failure::running(error.to_string()))?;
        Ok(format!(
            "First {} visible rows:\n{shown}\n",
            output.rows.num_rows()
        ))
    }
}

/// One line in place on a terminal, one line now and then elsewhere; always on stderr.
async fn show_progress(mut progress: watch::Receiver<Progress>, quiet: bool) {
    if quiet {
        return;
    }
    let in_place = std::io::stderr().is_terminal();
    let pause = if in_place {
        Duration::from_millis(200)
    } else {
        QUIET_PROGRESS
    };
    let mut ticks = interval_at(Instant::now() + pause, pause);
    loop {
        ticks.tick().await;
        let line = progress_line(&progress.borrow_and_update());
        if in_place {
            eprint!("\r\x1b[2K{line}");
        } else {
            eprintln!("{line}");
        }
    }
}

fn progress_line(progress: &Progress) -> String {
    let Progress {
        rows_read,
        rows_committed,
        epoch,
        restarts,
        rows_per_second,
    } = *progress;
    let restarts = if restarts == 0 {
        String::new()
    } else {
        format!(" · restarts {restarts}")
    };
    format!(
        "rows in {rows_read} · rows visible {rows_committed} · epoch {epoch} · {rows_per_second:.0} rows/s{restarts}"
    )
}

/// Where the rows went, and how often each is there.
struct Promised {
    table: String,
    dead_letters: Option<String>,
    guarantee: &'static str,
}

impl Promised {
    fn of(options: &SinkOptions) -> Self {
        Self {
            table: options.table.to_string(),
            dead_letters: match &options.row_errors {
                RowErrors::Fail => None,
                RowErrors::DeadLetter { table, .. } => Some(table.to_string()),
            },
            guarantee: options.mode.guarantee(),
        }
    }
}

fn report(arguments: &RunArguments, summary: &Summary, stopped: bool, promised: &Promised) -> String {
    let Promised {
        table,
        dead_letters,
        guarantee,
    } = promised;
    let Summary {
        rows_read,
        rows_committed,
        rows_rejected,
        checkpoints,
        restarts,
        streams_created,
        seconds,
        ..
    } = *summary;
    if arguments.json {
        let summary = json!({
            "rows_read": rows_read,
            "rows_committed": rows_committed,
            "rows_rejected": rows_rejected,
            "checkpoints": checkpoints,
            "restarts": restarts,
            "streams_created": streams_created,
            "guarantee": guarantee,
            "seconds": seconds,
            "stopped": stopped,
        });
        return format!("{summary}\n");
    }
    let stopped = match summary.already_ended {
        Some(epoch) => format!(
            "nothing to do: the input had ended at checkpoint {epoch}, and all of it is visible; --new-state starts anew and writes it again\n"
        ),
        None if stopped => "stopped with a checkpoint; the same command goes on from there\n".to_owned(),
        None => String::new(),
    };
    let dead_letters = match dead_letters {
        Some(table) if rows_rejected > 0 => format!("; dead letters are in {table}"),
        _ => String::new(),
    };
    format!(
        "{stopped}{rows_read} rows read, {rows_committed} rows became visible in {table}, each {guarantee}, after {seconds:.1} s\n\
         {checkpoints} checkpoints · {streams_created} write streams · {restarts} restarts · {rows_rejected} rows rejected{dead_letters}\n"
    )
}
