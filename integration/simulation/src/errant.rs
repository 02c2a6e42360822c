//! A BigQuery that errs: whoever watches must object, or a sink that erred so would pass as well.
//!
//! No code is compiled in for these mistakes: the emulator unlearns what it knows ([`Scenario::unlearned`]).

use bigquery_write_emulator::faults::{FaultAction, Rpc};
use bigquery_write_emulator::machine::{Behaviour, Code};

use crate::enumerate::{barrier_plans, call_faults};
use crate::run::run;
use crate::scenario::Scenario;

/// Each is noticed within so many runs.
pub const RUNS: usize = 60;

/// A mistake of BigQuery.
#[derive(Clone, Copy, Debug)]
pub struct Errant {
    /// What it does.
    pub what: &'static str,
    /// What the emulator has unlearned for that.
    pub unlearned: &'static [Behaviour],
    /// The property that is violated (testing.md 7.4).
    pub property: &'static str,
}

/// Every one.
pub const ALL: [Errant; 9] = [
    Errant {
        what: "a second flush shows the rows again",
        unlearned: &[Behaviour::FlushShowsRowsOnce],
        property: "P2",
    },
    Errant {
        what: "rows are visible before the flush",
        unlearned: &[Behaviour::HeldUntilPublished],
        property: "P5",
    },
    Errant {
        what: "a flush shows more than was asked",
        unlearned: &[Behaviour::FlushStopsAtOffset],
        property: "P5",
    },
    Errant {
        what: "a flush shows less than was asked",
        unlearned: &[Behaviour::FlushIsInclusive],
        property: "P1",
    },
    Errant {
        what: "a resend is stored twice, and nobody is told",
        unlearned: &[Behaviour::OffsetBelowEndExists, Behaviour::AnswersWhereRowsAre],
        property: "P2",
    },
    Errant {
        what: "a resend is stored twice, and answered with its new place",
        unlearned: &[Behaviour::OffsetBelowEndExists],
        property: "P11",
    },
    Errant {
        what: "a gap is closed, and nobody is told",
        unlearned: &[
            Behaviour::OffsetAboveEndOutOfRange,
            Behaviour::AnswersWhereRowsAre,
        ],
        property: "P2",
    },
    Errant {
        what: "a gap is closed, and answered with its new place",
        unlearned: &[Behaviour::OffsetAboveEndOutOfRange],
        property: "P2",
    },
    Errant {
        what: "an append answers where its rows end",
        unlearned: &[Behaviour::AnswersFirstRowOffset],
        property: "P11",
    },
];

impl Errant {
    /// Runs in which it can show.
    #[must_use]
    pub fn batch(&self) -> Vec<Scenario> {
        let latent = Scenario::latent();
        // What has requests sent again, and what has those behind a request refused with it.
        let unavailable = Code::Unavailable;
        let shows = |action: &FaultAction| match action {
            FaultAction::Refuse { code, in_band, .. } => *in_band && *code == unavailable,
            FaultAction::LoseAnswer { code } => *code == unavailable,
            FaultAction::ApplyTwice { .. } => true,
            _ => false,
        };
        let mut appends = call_faults(&latent);
        appends.retain(|scenario| {
            let rule = &scenario.faults.rules[0];
            rule.rpc == Rpc::AppendRows && shows(&rule.action)
        });
        let plans = barrier_plans().into_iter().map(|(_, plan)| plan);
        let calm = [Scenario::calm(1), Scenario::calm(2), latent];
        let mut scenarios: Vec<_> = calm.into_iter().chain(plans.take(7)).chain(appends).collect();
        scenarios.truncate(RUNS);
        for scenario in &mut scenarios {
            scenario.unlearned.extend(self.unlearned);
        }
        scenarios
    }

    /// In which run of the batch it is noticed as what it is, from 1.
    #[must_use]
    pub fn noticed(&self) -> Option<usize> {
        let objects = |scenario: &Scenario| {
            let violations = run(scenario).violations;
            violations.iter().any(|violation| {
                let property = violation.split(':').next();
                property == Some(self.property)
            })
        };
        self.batch().iter().position(objects).map(|at| at + 1)
    }
}
