//! The table at the end: what was run, what was come by, what came true, which mistakes were noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::batch::Tally;
use crate::errant::Errant;
use crate::faults::{Fault, Kind};
use crate::point::{Host, Point};
use crate::predicate::Predicate;

/// So many seeds under a host come by every point of it, and make every predicate true.
pub const ENOUGH: u64 = 1000;

/// Everything that a run of many seeds showed.
#[derive(Clone, Debug)]
pub struct Results {
    /// Under whom.
    pub hosts: Vec<Host>,
    /// How many of each.
    pub seeds: u64,
    /// What they showed.
    pub tally: Tally,
    /// Mistakes of BigQuery, with the run of their batch in which each was noticed.
    pub errant: Vec<(Errant, Option<usize>)>,
    /// Mistakes of ours, if this build can make them.
    pub mutants: Option<Vec<Tried>>,
    /// How long it took by the wall clock.
    pub took: Duration,
}

/// A mistake of ours that was made.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Its name.
    pub mutant: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was noticed.
    Noticed {
        /// After so many runs.
        runs: usize,
        /// By this.
        violation: String,
    },
    /// It was not.
    Missed {
        /// In so many runs.
        runs: usize,
    },
    /// No run can show it.
    Elsewhere {
        /// Why.
        why: String,
    },
}

/// Width of the names.
const NAME: usize = 58;

impl Results {
    /// Points that these hosts come by, and that no run came by.
    #[must_use]
    pub fn missed_points(&self) -> Vec<String> {
        let due = self.due_points().into_iter();
        due.filter(|point| !self.tally.points.contains(point))
            .map(|point| point.to_string())
            .collect()
    }

    /// Predicates that can be true under these hosts, and were true in no run.
    #[must_use]
    pub fn missed_predicates(&self) -> Vec<String> {
        let due = self.due_predicates().into_iter();
        due.filter(|predicate| !self.tally.predicates.contains_key(predicate))
            .map(|predicate| predicate.to_string())
            .collect()
    }

    /// Why this is a failure, one reason each; empty if all is well.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.tally.broken_runs > 0 {
            complaints.push(format!("{} runs are broken", self.tally.broken_runs));
        }
        if self.seeds >= ENOUGH {
            let points = self.missed_points().into_iter();
            complaints.extend(points.map(|point| format!("no run came by this point: {point}")));
            let predicates = self.missed_predicates().into_iter();
            complaints.extend(predicates.map(|predicate| format!("this was true in no run: {predicate}")));
        }
        let missed = self.errant.iter().filter(|(_, noticed)| noticed.is_none());
        complaints
            .extend(missed.map(|(errant, _)| format!("BigQuery's mistake was not noticed: {}", errant.what)));
        for tried in self.mutants.iter().flatten() {
            if let Verdict::Missed { runs } = tried.verdict {
                complaints.push(format!("{} was not noticed in {runs} runs", tried.mutant));
            }
        }
        complaints
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, value) in self.totals() {
            line(&mut out, &name, &value);
        }
        for point in self.missed_points() {
            line(&mut out, &format!("  {point}"), "NEVER");
        }
        section(&mut out, "was true", "in runs");
        for predicate in self.due_predicates() {
            let runs = self.tally.predicates.get(&predicate).copied().unwrap_or_default();
            line(&mut out, &format!("  {predicate}"), &runs.to_string());
        }
        if !self.errant.is_empty() {
            section(&mut out, "BigQuery's mistakes", "noticed in run");
        }
        for (errant, noticed) in &self.errant {
            let noticed = noticed.map_or("NEVER".to_owned(), |run| run.to_string());
            line(&mut out, &format!("  {}", errant.what), &noticed);
        }
        if let Some(mutants) = &self.mutants {
            section(&mut out, "mistakes of our own", "noticed in run");
            for tried in mutants {
                let verdict = match &tried.verdict {
                    Verdict::Noticed { runs, .. } => runs.to_string(),
                    Verdict::Missed { .. } => "NEVER".to_owned(),
                    Verdict::Elsewhere { .. } => "elsewhere".to_owned(),
                };
                line(&mut out, &format!("  {}", tried.mutant), &verdict);
            }
        }
        for of in [Kind::Call, Kind::Connection, Kind::Store, Kind::Process] {
            out += &self.matrix(of);
        }
        section(&mut out, "from what went wrong last to the end", "seconds");
        for (after, took) in &self.tally.settling {
            let after = if after.is_empty() { "nothing" } else { after };
            line(
                &mut out,
                &format!("  {after}"),
                &format!("{:.0}", took.as_secs_f64()),
            );
        }
        out
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let Tally { faults, .. } = &self.tally;
        let fault = |(fault, times): (&Fault, &u64)| json!({ "of": fault.of.to_string(), "what": fault.what, "place": fault.place, "times": times });
        let due = self.due_predicates().into_iter();
        let predicates: BTreeMap<_, _> = due
            .map(|predicate| {
                let runs = self.tally.predicates.get(&predicate).copied().unwrap_or_default();
                (predicate.to_string(), runs)
            })
            .collect();
        let errant: BTreeMap<_, _> = self
            .errant
            .iter()
            .map(|(errant, run)| (errant.what, *run))
            .collect();
        let mutants = self.mutants.as_ref().map(|mutants| {
            let verdict = |tried: &Tried| {
                let verdict = match &tried.verdict {
                    Verdict::Noticed { runs, violation } => {
                        json!({ "noticed_in": runs, "violation": violation })
                    }
                    Verdict::Missed { runs } => json!({ "missed_in": runs }),
                    Verdict::Elsewhere { why } => json!({ "elsewhere": why }),
                };
                (tried.mutant.clone(), verdict)
            };
            mutants.iter().map(verdict).collect::<BTreeMap<_, _>>()
        });
        json!({
            "runs": self.tally.runs,
            "seeds": self.seeds,
            "hosts": self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "broken": self.tally.broken_runs,
            "ended_loudly": self.tally.failed_loudly(),
            "points": { "hit": self.due_points().len() - self.missed_points().len(), "missed": self.missed_points() },
            "predicates": predicates,
            "faults": {
                "planned": faults.planned,
                "idle": faults.idle,
                "came_true": faults.came_true.iter().map(fault).collect::<Vec<_>>(),
            },
            "seconds_to_the_end": self.tally.settling.iter().map(|(after, took)| (after, took.as_secs_f64())).collect::<BTreeMap<_, _>>(),
            "errant": errant,
            "mutants": mutants,
            "simulated_seconds": self.tally.simulated.as_secs_f64(),
            "seconds": self.took.as_secs_f64(),
            "complaints": self.complaints(),
        })
    }

    fn totals(&self) -> Vec<(String, String)> {
        let Tally { faults, .. } = &self.tally;
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        let of = |missed: usize, all: usize| format!("{}/{all}", all - missed);
        let never = self
            .errant
            .iter()
            .filter(|(_, noticed)| noticed.is_none())
            .count();
        let mut totals = Vec::new();
        if self.seeds > 0 {
            let name = format!("seeds, each under {}", hosts.join(" and "));
            totals.push((name, self.seeds.to_string()));
        }
        totals.extend([
            ("runs".to_owned(), self.tally.runs.to_string()),
            ("  broken".to_owned(), self.tally.broken_runs.to_string()),
            (
                "  ended loudly, as their faults allow".to_owned(),
                self.tally.failed_loudly().to_string(),
            ),
            (
                "simulated hours".to_owned(),
                format!("{:.1}", self.tally.simulated.as_secs_f64() / 3600.0),
            ),
            ("seconds".to_owned(), format!("{:.1}", self.took.as_secs_f64())),
            (
                "faults that came true, of those named".to_owned(),
                of(faults.idle, faults.planned),
            ),
            (
                "points come by, of those declared".to_owned(),
                of(self.missed_points().len(), self.due_points().len()),
            ),
            (
                "predicates true in some run".to_owned(),
                of(self.missed_predicates().len(), self.due_predicates().len()),
            ),
        ]);
        if !self.errant.is_empty() {
            let noticed = of(never, self.errant.len());
            totals.push(("BigQuery's mistakes noticed".to_owned(), noticed));
            totals.push(("mistakes of our own noticed".to_owned(), self.mutants_noticed()));
        }
        totals
    }

    fn mutants_noticed(&self) -> String {
        let Some(mutants) = &self.mutants else {
            return "none is made: build with --features mutants".to_owned();
        };
        let count =
            |wanted: fn(&Verdict) -> bool| mutants.iter().filter(|tried| wanted(&tried.verdict)).count();
        let noticed = count(|verdict| matches!(verdict, Verdict::Noticed { .. }));
        let elsewhere = count(|verdict| matches!(verdict, Verdict::Elsewhere { .. }));
        format!(
            "{noticed}/{} and {elsewhere} elsewhere",
            mutants.len() - elsewhere
        )
    }

    /// How often each kind of fault came true at each place; nothing if none was planned.
    fn matrix(&self, of: Kind) -> String {
        let cells = || {
            let all = self.tally.faults.came_true.iter();
            all.filter(move |(fault, _)| fault.of == of)
        };
        let whats: BTreeSet<_> = cells().map(|(fault, _)| &fault.what).collect();
        let places: BTreeSet<_> = cells().map(|(fault, _)| &fault.place).collect();
        let mut out = String::new();
        if whats.is_empty() {
            return out;
        }
        write!(out, "\n{:<NAME$}", of.to_string()).expect(TEXT);
        for place in &places {
            write!(out, "  {place:>8}").expect(TEXT);
        }
        out.push('\n');
        for what in whats {
            write!(out, "{:<NAME$}", format!("  {what}")).expect(TEXT);
            for place in &places {
                let times = cells().find(|(fault, _)| fault.what == *what && fault.place == **place);
                let times = times.map_or(String::new(), |(_, times)| times.to_string());
                write!(out, "  {times:>width$}", width = place.len().max(8)).expect(TEXT);
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out
    }

    fn due_points(&self) -> Vec<Point> {
        let all = Point::all().into_iter();
        all.filter(|point| self.is_due(point.host())).collect()
    }

    fn due_predicates(&self) -> Vec<Predicate> {
        let all = Predicate::ALL.into_iter();
        all.filter(|predicate| self.is_due(predicate.host())).collect()
    }

    fn is_due(&self, host: Option<Host>) -> bool {
        host.is_none_or(|host| self.hosts.contains(&host))
    }
}

const TEXT: &str = "a text takes what is written to it";

fn section(out: &mut String, name: &str, value: &str) {
    out.push('\n');
    line(out, name, value);
}

fn line(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:<NAME$}  {value:>8}").expect(TEXT);
}
