//! Explores more than the tests do, or shows one run again.

use std::process::ExitCode;
use std::time::Instant;

use bigquery_sink_simulation::{
    ENOUGH, Host, Outcome, Results, Scenario, Tally, Tried, errant, run, run_all, seed, shrink,
};
use clap::{Parser, ValueEnum};

/// Runs the sink, its host and the emulator under simulated crashes and faults, and looks whether every row is visible
/// exactly once.
#[derive(Debug, Parser)]
#[command(after_help = after_help())]
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
    /// Who drives the sink in the scenarios of the seeds.
    #[arg(long, value_enum, default_value_t = Hosts::Both, conflicts_with = "scenario")]
    host: Hosts,
    /// Runs this scenario alone: JSON, or `@` and a file's path.
    #[arg(long, conflicts_with = "seed")]
    scenario: Option<String>,
    /// Prints everything that was seen, besides the result.
    #[arg(long)]
    trace: bool,
    /// Prints the table as JSON.
    #[arg(long, conflicts_with_all = ["seed", "scenario"])]
    json: bool,
    /// Makes a broken scenario smaller before it is shown.
    #[arg(long)]
    shrink: bool,
}

fn after_help() -> String {
    format!(
        "The exit code is 1 if a run is broken or a mistake that is made on purpose is not noticed; with {ENOUGH} seeds or more also if a point \
         was never come by or a predicate never true. A build with `--features mutants` makes each known mistake of a sink as well.\n\n\
         Examples:\n  \
         bigquery-sink-simulation --seeds 10000\n  \
         bigquery-sink-simulation --seed 4711 --host engine --trace\n  \
         bigquery-sink-simulation --scenario @incident.json\n  \
         bigquery-sink-simulation --scenario '{{\"incarnations\": [{{\"parallelism\": 2, \"end\": {{\"kill\": {{\"hit\": 40}}}}}}]}}'"
    )
}

/// Who drives the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hosts {
    /// The embedded host.
    Embedded,
    /// The engine's script.
    Engine,
    /// Each seed makes a scenario for one and for the other.
    Both,
}

impl Arguments {
    fn of_seed(&self, seed: u64) -> impl Iterator<Item = Scenario> {
        let hosts = self.hosts().into_iter();
        hosts.map(move |host| match host {
            Host::Embedded => seed::scenario(seed),
            Host::Engine => seed::engine(seed),
        })
    }

    fn hosts(&self) -> Vec<Host> {
        match self.host {
            Hosts::Embedded => vec![Host::Embedded],
            Hosts::Engine => vec![Host::Engine],
            Hosts::Both => vec![Host::Embedded, Host::Engine],
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match chosen(&arguments) {
        Err(error) => Err(error),
        Ok(Some(scenarios)) => {
            // Each is shown, also behind one that is broken.
            let broken = scenarios.iter().filter(|scenario| !single(scenario, &arguments));
            Ok(broken.count() == 0)
        }
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

/// The scenarios that are asked for, if not those of many seeds.
fn chosen(arguments: &Arguments) -> Result<Option<Vec<Scenario>>, String> {
    if let Some(seed) = arguments.seed {
        return Ok(Some(arguments.of_seed(seed).collect()));
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
        .map(|scenario| Some(vec![scenario]))
        .map_err(|error| format!("the scenario cannot be read: {error}"))
}

fn single(scenario: &Scenario, arguments: &Arguments) -> bool {
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
    sound
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
        let scenarios: Vec<_> = (from..to).flat_map(|seed| arguments.of_seed(seed)).collect();
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
        say(std::io::stderr(), &format!("smallest: --scenario '{smallest}'\n"));
    }
    if let Some(complaint) = total.complaint() {
        say(std::io::stderr(), &complaint);
    }
    let results = Results {
        hosts: arguments.hosts(),
        seeds: arguments.seeds,
        tally: total,
        errant: errant::ALL.map(|errant| (errant, errant.noticed())).to_vec(),
        mutants: mutants(),
        took: began.elapsed(),
    };
    let shown = if arguments.json {
        format!("{:#}\n", results.json())
    } else {
        results.text()
    };
    say(std::io::stdout(), &shown);
    let complaints = results.complaints();
    for complaint in &complaints {
        say(std::io::stderr(), &format!("error: {complaint}\n"));
    }
    Ok(complaints.is_empty())
}

/// Makes each known mistake.
#[cfg(feature = "mutants")]
fn mutants() -> Option<Vec<Tried>> {
    use bigquery_sink_simulation::mutants::try_out;
    Some(bigquery_sink::Mutant::ALL.into_iter().map(try_out).collect())
}

/// This build can make none.
#[cfg(not(feature = "mutants"))]
fn mutants() -> Option<Vec<Tried>> {
    None
}

/// Whoever closed the other end does not want to hear more.
fn say(mut to: impl std::io::Write, text: &str) {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).ok();
}
