//! P13: what the metrics say is what BigQuery knows, while a run goes on and at its end.

use std::collections::BTreeMap;

use bigquery_sink::metrics::{AppendResult, Counter, StreamPhase, SubtaskStatus};
use bigquery_sink::{CommandKind, Metrics, Moment};
use bigquery_write_emulator::machine::StreamInfo;

use crate::scenario::WriteMode;
use crate::world::{Site, short};

/// What the counters of one process say at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    appended: u64,
    committed: u64,
    dead_letters: u64,
    rejected: u64,
    created: u64,
    discarded: u64,
    acknowledged_requests: u64,
    stored_resends: u64,
    running: usize,
}

/// What they are held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    /// Rows that are visible in the table.
    pub(crate) rows: u64,
    /// Dead letters that are.
    pub(crate) dead_letters: u64,
    /// Streams that BigQuery created.
    pub(crate) streams: u64,
    /// What was promised of the rows.
    pub(crate) mode: WriteMode,
    /// The table was not made anew in between, and BigQuery does not err.
    pub(crate) is_whole: bool,
    /// Everything was published, and each process heard of what it published.
    pub(crate) is_complete: bool,
    /// Rows of commits that more than one process may have carried out; `None` where that is not known.
    pub(crate) replayed: Option<u64>,
    /// Rows may be stored that nobody heard of, or twice (`write.mode = 'at_least_once'`).
    pub(crate) may_repeat: bool,
}

impl Counts {
    pub(crate) fn of(metrics: &Metrics) -> Self {
        let total = |counter| metrics.total(counter);
        Self {
            appended: total(Counter::RowsAppended),
            committed: total(Counter::RowsCommitted),
            dead_letters: total(Counter::DeadLettersWritten),
            rejected: metrics.sum(|counter| matches!(counter, Counter::RowsRejected(_))),
            created: total(Counter::StreamsCreated),
            discarded: metrics.sum(|counter| matches!(counter, Counter::StreamsDiscarded(_))),
            acknowledged_requests: total(Counter::AppendRequests(AppendResult::Ok)),
            stored_resends: total(Counter::OwnResendsStored),
            running: metrics
                .subtasks()
                .iter()
                .filter(|subtask| subtask.is_running)
                .count(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            appended: self.appended + other.appended,
            committed: self.committed + other.committed,
            dead_letters: self.dead_letters + other.dead_letters,
            rejected: self.rejected + other.rejected,
            created: self.created + other.created,
            discarded: self.discarded + other.discarded,
            acknowledged_requests: self.acknowledged_requests + other.acknowledged_requests,
            stored_resends: self.stored_resends + other.stored_resends,
            running: self.running + other.running,
        }
    }

    /// What is wrong within one process.
    fn alone(&self, truth: &Truth) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: String| {
            if !holds {
                wrong.push(what);
            }
        };
        let Self {
            created, discarded, ..
        } = self;
        check(
            self.running == 0,
            format!("{} subtasks are told to run at the end", self.running),
        );
        check(
            created == discarded,
            format!("{created} streams were created, and {discarded} discarded at the end"),
        );
        check(
            self.acknowledged_requests + self.stored_resends > 0 || self.appended + self.dead_letters == 0,
            format!("{} rows were appended without a request", self.appended),
        );
        check(
            self.dead_letters <= self.rejected,
            format!(
                "{} dead letters of {} rejected rows",
                self.dead_letters, self.rejected
            ),
        );
        if truth.is_whole {
            check(
                self.committed <= truth.rows,
                format!(
                    "{} rows are committed, and {} visible",
                    self.committed, truth.rows
                ),
            );
        }
        wrong
    }

    /// What is wrong of all together.
    fn together(&self, truth: &Truth) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{what}: {self:?}, {truth:?}"));
            }
        };
        check(self.created <= truth.streams, "streams that nobody created");
        if !truth.is_whole {
            return wrong;
        }
        if truth.mode == WriteMode::AtLeastOnce {
            check(self.committed == self.appended, "what is acknowledged is visible");
            check(
                self.appended <= truth.rows,
                "more rows acknowledged than are there",
            );
            check(
                self.dead_letters <= truth.dead_letters,
                "more dead letters acknowledged than are there",
            );
            check(
                truth.may_repeat || self.appended == truth.rows,
                "rows that nobody was told of",
            );
            return wrong;
        }
        check(truth.rows <= self.appended, "visible rows that nobody appended");
        check(
            truth.dead_letters <= self.dead_letters,
            "visible dead letters that nobody appended",
        );
        if truth.is_complete {
            check(truth.rows <= self.committed, "visible rows that nobody committed");
        }
        if let Some(replayed) = truth.replayed {
            check(self.committed <= truth.rows + replayed, "rows committed twice");
        }
        wrong
    }
}

/// What is wrong with the counts of the processes of a run.
pub(crate) fn judge(processes: &[Counts], truth: &Truth) -> Vec<String> {
    let mut wrong = Vec::new();
    for (process, counts) in (1..).zip(processes) {
        let said = counts.alone(truth).into_iter();
        wrong.extend(said.map(|what| format!("P13: process {process}: {what}")));
    }
    let all = processes
        .iter()
        .fold(Counts::default(), |all, one| all.plus(*one));
    let said = all.together(truth).into_iter();
    wrong.extend(said.map(|what| format!("P13: {what}")));
    wrong
}

/// A subtask has come by a command of its core: what its metrics say now.
pub(crate) fn look(site: &Site, metrics: &Metrics, subtask: u32, moment: Moment) {
    let is_drained = matches!(moment, Moment::After(CommandKind::Prepared | CommandKind::Closed));
    let is_published = matches!(
        moment,
        Moment::After(CommandKind::Committed | CommandKind::Closed)
    );
    if !is_drained && !is_published || site.door.is_dead() {
        return;
    }
    let status = metrics.subtasks();
    let Some(status) = status.iter().find(|status| status.subtask == subtask) else {
        return site
            .world
            .violation(format_args!("P13: nothing is told of subtask {subtask}"));
    };
    let streams = site.world.handle.streams();
    let streams = streams.iter().map(|stream| (stream.name.as_str(), stream));
    let streams = Streams(streams.collect());
    let mut wrong = streams.problems(status, is_published && site.is_newest());
    if is_drained {
        wrong.extend(streams.undrained(status));
    }
    if moment == Moment::After(CommandKind::Closed) && status.uncommitted_rows > 0 {
        wrong.push(format!(
            "{} rows are uncommitted at the end of data",
            status.uncommitted_rows
        ));
    }
    for what in wrong {
        site.world.violation(format_args!(
            "P13: process {}, subtask {subtask}, {moment:?}: {what}",
            site.index + 1
        ));
    }
}

/// What BigQuery knows of its streams.
struct Streams<'a>(BTreeMap<&'a str, &'a StreamInfo>);

impl Streams<'_> {
    /// Whoever published all it was asked to, and has no successor that publishes for it, knows how much is visible.
    fn problems(&self, status: &SubtaskStatus, knows_all: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut rows = 0;
        for told in &status.streams {
            rows += told.next_offset - told.flushed;
            // A default stream has no end; one that is gone is told of until that is found out.
            let Some(known) = self.0.get(told.stream.as_str()) else {
                continue;
            };
            let exact = if knows_all {
                told.flushed == known.flushed
            } else {
                told.flushed <= known.flushed
            };
            if !exact || told.next_offset > known.end {
                wrong.push(format!(
                    "{} is told to be {} acknowledged and {} flushed, BigQuery has {} and {}",
                    short(&told.stream),
                    told.next_offset,
                    told.flushed,
                    known.end,
                    known.flushed
                ));
            }
        }
        if rows != status.uncommitted_rows || (rows == 0) != status.oldest_uncommitted.is_none() {
            wrong.push(format!(
                "{rows} rows of its streams are not visible, {} are told to be, since {:?}",
                status.uncommitted_rows, status.oldest_uncommitted
            ));
        }
        wrong
    }

    /// Everything is acknowledged.
    fn undrained(&self, status: &SubtaskStatus) -> Vec<String> {
        let mut wrong = Vec::new();
        let inflight = (status.inflight_bytes, status.inflight_requests);
        if inflight != (0, 0) {
            wrong.push(format!(
                "{inflight:?} bytes and requests are in flight behind a barrier"
            ));
        }
        let open = status
            .streams
            .iter()
            .filter(|told| told.phase == StreamPhase::Open);
        for told in open {
            if let Some(known) = self.0.get(told.stream.as_str())
                && told.next_offset != known.end
            {
                wrong.push(format!(
                    "{} is told to end at {} behind a barrier, and ends at {}",
                    short(&told.stream),
                    told.next_offset,
                    known.end
                ));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: Truth = Truth {
        rows: 100,
        dead_letters: 0,
        streams: 3,
        mode: WriteMode::ExactlyOnce,
        is_whole: true,
        is_complete: true,
        replayed: Some(0),
        may_repeat: false,
    };

    fn counts(appended: u64, committed: u64) -> Counts {
        Counts {
            appended,
            committed,
            created: 1,
            discarded: 1,
            acknowledged_requests: 1,
            ..Counts::default()
        }
    }

    /// What is found, without the numbers.
    fn found(processes: &[Counts], truth: Truth) -> Vec<String> {
        let found = judge(processes, &truth).into_iter();
        found
            .map(|what| what.split(": Counts").next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn counts_that_are_not_the_truth_are_found() {
        assert_eq!(found(&[counts(60, 60), counts(50, 40)], TRUTH), [""; 0]);
        let replayed = Truth {
            replayed: Some(20),
            ..TRUTH
        };
        assert_eq!(found(&[counts(60, 60), counts(50, 60)], replayed), [""; 0]);
        assert_eq!(
            found(&[counts(60, 60), counts(50, 60)], TRUTH),
            ["P13: rows committed twice"]
        );
        assert_eq!(
            found(&[counts(60, 60), counts(39, 39)], TRUTH),
            [
                "P13: visible rows that nobody appended",
                "P13: visible rows that nobody committed"
            ]
        );
        assert_eq!(
            found(&[counts(200, 101)], replayed),
            ["P13: process 1: 101 rows are committed, and 100 visible"]
        );
        let mut left = counts(100, 100);
        (left.running, left.created, left.dead_letters) = (1, 4, 1);
        assert_eq!(
            found(&[left], TRUTH),
            [
                "P13: process 1: 1 subtasks are told to run at the end",
                "P13: process 1: 4 streams were created, and 1 discarded at the end",
                "P13: process 1: 1 dead letters of 0 rejected rows",
                "P13: streams that nobody created"
            ]
        );
    }

    #[test]
    fn on_a_default_stream_what_is_acknowledged_is_visible() {
        let mut truth = Truth {
            mode: WriteMode::AtLeastOnce,
            ..TRUTH
        };
        assert_eq!(found(&[counts(100, 100)], truth), [""; 0]);
        assert_eq!(
            found(&[counts(90, 90)], truth),
            ["P13: rows that nobody was told of"]
        );
        truth.may_repeat = true;
        assert_eq!(found(&[counts(90, 90)], truth), [""; 0]);
        assert_eq!(
            found(&[counts(90, 80)], truth),
            ["P13: what is acknowledged is visible"]
        );
    }
}
