//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

/// SQL pipelines into BigQuery: every row visible exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "arroyo-bigquery",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  arroyo-bigquery run examples/earthquakes.sql          against an emulator in this process
  arroyo-bigquery check pipeline.sql --connect          what is wrong, before the first row
  arroyo-bigquery emulator                              BigQuery on this machine, until Ctrl-C
  arroyo-bigquery query 'SELECT count(*) FROM `p.d.t`'  against that emulator

RUST_LOG says what is logged on stderr: a level, or levels by part such as RUST_LOG=warn,bigquery_sink=debug [default: warn].

Exit codes: 0 done, 1 failed while running, 2 wrong usage or invalid pipeline."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How log lines on stderr are written.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline until its input ends or Ctrl-C; run it again to go on where it was.
    Run(RunArguments),
    /// Say what is wrong with a pipeline's SQL and options, without running it.
    Check(CheckArguments),
    /// Be BigQuery: the Storage Write API and the REST API, in memory or on a data directory, until stopped.
    Emulator(EmulatorArguments),
    /// Run a SELECT and print its rows.
    Query(QueryArguments),
    /// Look at the checkpoints of a state directory.
    Checkpoint(CheckpointArguments),
    /// Print what each type of a pipeline becomes in BigQuery, or why it is refused.
    Types(TypesArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  arroyo-bigquery run examples/earthquakes.sql
  arroyo-bigquery run job.sql --parallelism 4 --checkpoint-interval 10s
  arroyo-bigquery run job.sql --state-dir gs://bucket/jobs/clicks --json
  arroyo-bigquery run job.sql --metrics 127.0.0.1:9464

The first Ctrl-C (or SIGTERM) stops with a checkpoint, the second at once. A crash loses nothing: run the same command again.")]
pub(crate) struct RunArguments {
    /// The SQL file: CREATE TABLE for a source and a BigQuery sink, and one INSERT INTO ... SELECT.
    pub(crate) pipeline: PathBuf,
    /// Where checkpoints are kept: a folder or an object store URL [default: beside the SQL file, PIPELINE.state].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<String>,
    /// Parallel instances of the sink, 1 to 1024; may change from run to run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) parallelism: u32,
    /// Time between checkpoints: rows become visible this often.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) checkpoint_interval: Duration,
    /// Start anew, whatever the state directory says; rows written before are written again.
    #[arg(long)]
    pub(crate) new_state: bool,
    /// Take the state directory from a host that still holds it; that host stops at its next checkpoint.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Read this file, or for a `filesystem` source this folder, in place of the source's.
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Read at most this many rows a second from a file.
    #[arg(long, value_name = "ROWS")]
    pub(crate) source_rate: Option<f64>,
    /// Serve metrics for Prometheus at /metrics, and a page that shows the run at /, while it runs; port 0 takes a free one. Whoever
    /// reaches the address can read them.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// End with one JSON object on stdout, and print nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The SQL file.
    pub(crate) pipeline: PathBuf,
    /// Also look at the table: does it exist, may it be written, do the columns fit?
    #[arg(long)]
    pub(crate) connect: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  arroyo-bigquery emulator --dataset geology
  arroyo-bigquery emulator --data-dir ./bigquery --project demo --dataset geology:europe-west3
  arroyo-bigquery emulator --faults plan.json --latency 40ms
  arroyo-bigquery emulator --switches switches.json --tls cert.pem key.pem

Google's clients for Python and Node send REST there with BIGQUERY_EMULATOR_HOST=http://127.0.0.1:9050, Go's with that endpoint. The Write API's
clients take the address of a plaintext gRPC channel.")]
pub(crate) struct EmulatorArguments {
    /// Where the Storage Write API listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9060")]
    pub(crate) grpc: SocketAddr,
    /// Where the REST API listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9050")]
    pub(crate) http: SocketAddr,
    /// Keep datasets, tables, rows and streams here, so that the next emulator goes on with them [default: in memory].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The project of the datasets that are made at the start.
    #[arg(long, default_value = "demo")]
    pub(crate) project: String,
    /// Make this dataset at the start, in the US or in this location, unless it is there; may be repeated.
    #[arg(long, value_name = "NAME[:LOCATION]", value_parser = dataset)]
    pub(crate) dataset: Vec<DatasetArgument>,
    /// Serve both over TLS with this certificate and key (PEM files).
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"])]
    pub(crate) tls: Option<Vec<PathBuf>>,
    /// What goes wrong: a JSON file, see docs/faults.md.
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// What BigQuery may answer one way or another, and its limits: a JSON file with some of the emulator's switches.
    #[arg(long, value_name = "FILE")]
    pub(crate) switches: Option<PathBuf>,
    /// A round trip that is added to every answer of the Storage Write API.
    #[arg(long, value_name = "TIME", value_parser = any_duration)]
    pub(crate) latency: Option<Duration>,
    /// Drop rows once they are checked and counted, to measure who sends them: queries find none.
    #[arg(long)]
    pub(crate) discard: bool,
}

/// A dataset to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatasetArgument {
    pub(crate) name: String,
    /// As given.
    pub(crate) location: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("format").args(["json", "csv"]), after_help = "\
Examples:
  arroyo-bigquery query 'SELECT count(*) FROM `demo.geology.earthquakes`'
  arroyo-bigquery query --http https://bigquery.googleapis.com --project my-project --csv 'SELECT 1 AS one'")]
pub(crate) struct QueryArguments {
    /// The query.
    pub(crate) sql: String,
    /// The REST API: an emulator's address, or `https://bigquery.googleapis.com` (credentials: Google's application default ones).
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9050")]
    pub(crate) http: String,
    /// The project that runs the query.
    #[arg(long, default_value = "demo")]
    pub(crate) project: String,
    /// One JSON object per row: INT64 and FLOAT64 as numbers, NUMERIC as text, since readers would take it for a double.
    #[arg(long)]
    pub(crate) json: bool,
    /// Comma-separated values with a header; NULL is an empty field, an empty text is "", arrays and structs are JSON.
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TypesArguments {
    /// One JSON object for each pair of types.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointArguments {
    #[command(subcommand)]
    pub(crate) command: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// One line per checkpoint, oldest first.
    List {
        /// The state directory or URL.
        #[arg(long, value_name = "DIR")]
        state_dir: String,
        /// One JSON object per checkpoint.
        #[arg(long)]
        json: bool,
    },
    /// Everything a checkpoint holds.
    Show {
        /// The state directory or URL.
        #[arg(long, value_name = "DIR")]
        state_dir: String,
        /// The checkpoint's number [default: the newest complete one].
        #[arg(long, value_name = "N")]
        epoch: Option<u64>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `1s`, `500 ms`, `1m 30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = any_duration(text)?;
    if duration < Duration::from_millis(10) {
        return Err("it must be at least 10ms".into());
    }
    Ok(duration)
}

fn any_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// `name` or `name:location`.
fn dataset(text: &str) -> Result<DatasetArgument, String> {
    let (name, location) = match text.split_once(':') {
        Some((_, "")) => return Err("the location is missing".into()),
        Some((name, location)) => (name, Some(location.to_owned())),
        None => (text, None),
    };
    let name = name.to_owned();
    Ok(DatasetArgument { name, location })
}
