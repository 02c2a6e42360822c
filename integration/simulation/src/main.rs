//! Explores more than the tests do, or shows one run again.

use std::process::ExitCode;
use std::time::Instant;

use bigquery_sink_simulation::{Outcome, Scenario, Tally, run, run_all, seed, shrink};
use clap::Parser;

/// Runs the sink, its host and the emulator under simulated crashes and faults, and looks whether every row is visible
/// exactly once.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  bigquery-sink-simulation --seeds 10000
  bigquery-sink-simulation --seed 4711 --trace
  bigquery-sink-simulation --scenario '{\"incarnations\": [{\"parallelism\": 2, \"end\": {\"kill\": {\"hit\": 40}}}]}'")]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 200, conflicts_with_all = ["seed", "scenario"])]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Runs this seed's scenario alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds are of scenarios under the engine, and not under the embedded host.
    #[arg(long, conflicts_with = "scenario")]
    engine: bool,
    /// Runs this scenario alone: JSON, or `@` and a file's path.
    #[arg(long, conflicts_with = "seed")]
    scenario: Option<String>,
    /// Prints everything that was seen, besides the result.
    #[arg(long)]
    trace: bool,
    /// Makes a broken scenario smaller before it is shown.
    #[arg(long)]
    shrink: bool,
}

impl Arguments {
    fn of_seed(&self, seed: u64) -> Scenario {
        if self.engine {
            seed::engine(seed)
        } else {
            seed::scenario(seed)
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match one(&arguments) {
        Err(error) => Err(error),
        Ok(Some(scenario)) => single(&scenario, &arguments),
        Ok(None) => many(&arguments),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(std::io::stderr(), &format!("error: {error}\n"));
            ExitCode::from(2)
        }
    }
}

fn one(arguments: &Arguments) -> Result<Option<Scenario>, String> {
    if let Some(seed) = arguments.seed {
        return Ok(Some(arguments.of_seed(seed)));
    }
    let Some(given) = &arguments.scenario else {
        return Ok(None);
    };
    let text = match given.strip_prefix('@') {
        None => given.clone(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?
        }
    };
    Scenario::from_json(&text)
        .map(Some)
        .map_err(|error| format!("the scenario cannot be read: {error}"))
}

fn single(scenario: &Scenario, arguments: &Arguments) -> Result<bool, String> {
    let report = run(scenario);
    let sound = report.violations.is_empty();
    let mut out = String::new();
    if arguments.trace || !sound {
        out += &report.trace;
    }
    let ended = match &report.outcome {
        Outcome::Complete => "everything is published".to_owned(),
        Outcome::Failed { error } => format!("ended loudly: {error}"),
        Outcome::Stuck => "not at its end in time".to_owned(),
    };
    out += &format!("{ended}; {} s simulated\n", report.simulated.as_secs_f64());
    for violation in &report.violations {
        out += &format!("violation: {violation}\n");
    }
    if !sound && arguments.shrink {
        out += &format!("smallest: --scenario '{}'\n", shrink::shrink(scenario).to_json());
    }
    say(std::io::stdout(), &out);
    Ok(sound)
}

fn many(arguments: &Arguments) -> Result<bool, String> {
    let began = Instant::now();
    let last = arguments
        .first
        .checked_add(arguments.seeds)
        .ok_or("there are no seeds so large")?;
    let mut total = Tally::default();
    let mut from = arguments.first;
    while from < last {
        let to = last.min(from + 500);
        let scenarios: Vec<_> = (from..to).map(|seed| arguments.of_seed(seed)).collect();
        total.merge(run_all(&scenarios));
        say(
            std::io::stderr(),
            &format!("\r{} of {} seeds", to - arguments.first, arguments.seeds),
        );
        from = to;
    }
    say(std::io::stderr(), "\n");
    if let Some(broken) = total.broken.first().filter(|_| arguments.shrink) {
        let smallest = shrink::shrink(&broken.scenario).to_json();
        say(std::io::stdout(), &format!("smallest: --scenario '{smallest}'\n"));
    }
    let complaint = total.complaint();
    say(
        std::io::stdout(),
        &format!(
            "{}{}",
            complaint.clone().unwrap_or_default(),
            total.table(began.elapsed())
        ),
    );
    Ok(complaint.is_none())
}

/// Whoever closed the other end does not want to hear more.
fn say(mut to: impl std::io::Write, text: &str) {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).ok();
}
