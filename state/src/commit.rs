//! One commit: flushes with their own budgets, in stages, until each is shown to be visible or the commit fails loudly.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::checkpoint::BigQueryCommitInfo;
use crate::fault::{Code, Fault, Phase, Place, Reaction, classify};
use crate::ids::{Epoch, FlushId, FlushOffset, Micros, NextOffset, RowCount, StreamName};
use crate::io::{Command, Failure, FailureKind, Notice, Unprovable};
use crate::mutant::Mutant;
use crate::open_stream::Shared;
use crate::trouble::{Next, Over, Patience};

/// The flushes of one commit, or of the end of data. Stages run one after the other; the flushes of one stage together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CommitRun {
    /// `None` at the end of data.
    pub(crate) epoch: Option<Epoch>,
    rows: RowCount,
    flushes: BTreeMap<FlushId, Flush>,
    stages: VecDeque<Vec<BigQueryCommitInfo>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flush {
    info: BigQueryCommitInfo,
    patience: Patience,
    /// `None`: an answer is due.
    again_at: Option<Micros>,
}

impl CommitRun {
    pub(crate) fn new(epoch: Option<Epoch>, stages: Vec<Vec<BigQueryCommitInfo>>) -> Self {
        let rows = RowCount(
            stages
                .iter()
                .flatten()
                .fold(0_u64, |rows, info| rows.saturating_add(info.rows().0)),
        );
        Self {
            epoch,
            rows,
            flushes: BTreeMap::new(),
            stages: stages.into(),
        }
    }

    pub(crate) fn rows(&self) -> RowCount {
        self.rows
    }

    pub(crate) fn next_wake(&self) -> Option<Micros> {
        self.flushes.values().filter_map(|flush| flush.again_at).min()
    }

    /// Asks for what can be asked now; true when everything is done.
    pub(crate) fn advance(&mut self, next_flush: &mut u64, shared: &mut Shared) -> bool {
        while self.flushes.is_empty() {
            let Some(stage) = self.stages.pop_front() else {
                return true;
            };
            for info in stage {
                *next_flush += 1;
                let flush = Flush {
                    info,
                    patience: Patience::default(),
                    again_at: Some(shared.now),
                };
                self.flushes.insert(FlushId(*next_flush), flush);
            }
        }
        for (&id, flush) in &mut self.flushes {
            if flush.again_at.is_some_and(|at| at <= shared.now) {
                flush.again_at = None;
                let mut offset = flush.info.flush_offset;
                if shared.mutation.is(Mutant::FlushNextOffset) {
                    offset = FlushOffset(offset.next_offset().0);
                }
                shared.emit(Command::Flush {
                    flush: id,
                    stream: flush.info.stream.clone(),
                    offset,
                });
            }
        }
        false
    }

    /// An answer: done if it covers the asked offset (invariant 10). Returns what is visible now.
    pub(crate) fn answered(
        &mut self,
        id: FlushId,
        offset: i64,
        shared: &mut Shared,
    ) -> Result<Option<(StreamName, NextOffset)>, Failure> {
        let Some(flush) = self.flushes.get(&id) else {
            return Ok(None);
        };
        let asked = flush.info.flush_offset;
        if u64::try_from(offset).is_ok_and(|answered| answered >= asked.0) {
            return Ok(self.done(id));
        }
        // As good as an end beyond which the rows lie.
        let short = Fault {
            code: Code::OutOfRange,
            storage_code: None,
            place: Place::RpcEnd,
            expected_offset: None,
            row_errors: Vec::new(),
            message: format!("the flush was answered with offset {offset} where {asked} was asked"),
        };
        self.failed(id, &short, shared)
    }

    /// A refusal. Returns what is visible all the same.
    pub(crate) fn failed(
        &mut self,
        id: FlushId,
        fault: &Fault,
        shared: &mut Shared,
    ) -> Result<Option<(StreamName, NextOffset)>, Failure> {
        let verdict = classify(Phase::Flush, fault);
        if verdict.reaction == Reaction::Success {
            shared.notice(Notice::AlreadyFlushed);
            return Ok(self.done(id));
        }
        let salt = shared.salt.wrapping_add(id.0);
        let Some(flush) = self.flushes.get_mut(&id) else {
            return Ok(None);
        };
        let pause =
            match flush
                .patience
                .next(Phase::Flush, verdict.reaction, &shared.limits, shared.now, salt)
            {
                Next::Retry(pause) => pause,
                Next::Refresh => {
                    shared.emit(Command::RefreshCredentials);
                    Duration::ZERO
                }
                Next::Over(over) => {
                    let text = format!("{fault} ({})", verdict.reason);
                    return match over {
                        Over::Gone => self.unprovable(id, &text, shared),
                        // The rows can still be flushed: nothing to decide yet, and the commit is replayed.
                        Over::Restart | Over::User => Err(unfinished(self.epoch, &flush.info, over, &text)),
                    };
                }
            };
        flush.again_at = Some(shared.now.after(pause));
        shared.notice(Notice::Retry {
            fault: fault.clone(),
            pause,
        });
        Ok(None)
    }

    fn done(&mut self, id: FlushId) -> Option<(StreamName, NextOffset)> {
        let flush = self.flushes.remove(&id)?;
        Some((flush.info.stream, flush.info.flush_offset.next_offset()))
    }

    /// Fails loudly, unless the operator decided otherwise (invariant 11).
    fn unprovable(
        &mut self,
        id: FlushId,
        text: &str,
        shared: &mut Shared,
    ) -> Result<Option<(StreamName, NextOffset)>, Failure> {
        let Some(flush) = self.flushes.get(&id) else {
            return Ok(None);
        };
        let info = &flush.info;
        let lost = match shared.limits.unprovable {
            Unprovable::Fail => return Err(unprovable_failure(self.epoch, info, text)),
            Unprovable::AssumeVisible => false,
            Unprovable::AcceptLoss => true,
        };
        let notice = Notice::UnprovableAccepted {
            stream: info.stream.clone(),
            epoch: self.epoch,
            rows: info.rows(),
            lost,
        };
        shared.notice(notice);
        Ok(self.done(id))
    }
}

/// "checkpoint 3", for messages.
fn of(epoch: Option<Epoch>) -> String {
    epoch.map_or_else(|| "the end of data".into(), |epoch| format!("checkpoint {epoch}"))
}

fn unfinished(epoch: Option<Epoch>, info: &BigQueryCommitInfo, over: Over, text: &str) -> Failure {
    let (kind, next) = match over {
        Over::User => (FailureKind::User, "mend it and start again"),
        Over::Restart | Over::Gone => (FailureKind::Restart, "the job restarts from its checkpoint"),
    };
    Failure {
        kind,
        message: format!(
            "flushing rows {} to {} of stream {} for {} failed: {text}; {next} and the commit is repeated",
            info.from_offset,
            info.flush_offset,
            info.stream,
            of(epoch)
        ),
    }
}

fn unprovable_failure(epoch: Option<Epoch>, info: &BigQueryCommitInfo, text: &str) -> Failure {
    Failure {
        kind: FailureKind::Unprovable,
        message: format!(
            "rows {} to {} of stream {} cannot be shown to be visible for {}: {text}. \
             Look at the table: if the rows are there, run once with commit.unprovable = 'assume_visible'; if they are not, with 'accept_loss'",
            info.from_offset,
            info.flush_offset,
            info.stream,
            of(epoch)
        ),
    }
}
