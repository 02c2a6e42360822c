//! One commit: flushes with their own budgets, in stages, until each is shown to be visible or the commit fails loudly.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::checkpoint::BigQueryCommitInfo;
use crate::fault::{Fault, Phase, Reaction, classify};
use crate::ids::{Epoch, FlushId, Micros, NextOffset, RowCount, StreamName};
use crate::io::{Command, Failure, FailureKind, Limits, Notice, Unprovable};
use crate::open_stream::Shared;
use crate::trouble::{Budget, Class, Trouble};

/// A stale end passes within seconds (write-api.md 2.7); rows that are lost stay lost.
const BEYOND_END: Duration = Duration::from_secs(30);
/// What BigQuery says of permissions it changed just now passes within a minute.
const FAIL_SOON: Duration = Duration::from_secs(60);

/// The flushes of one commit, or of the end of data. Stages run one after the other; the flushes of one stage together.
#[derive(Debug)]
pub(crate) struct CommitRun {
    /// `None` at the end of data.
    pub(crate) epoch: Option<Epoch>,
    rows: RowCount,
    flushes: BTreeMap<FlushId, Flush>,
    stages: VecDeque<Vec<BigQueryCommitInfo>>,
}

#[derive(Debug)]
struct Flush {
    info: BigQueryCommitInfo,
    trouble: Trouble,
    refreshed: bool,
    /// `None`: an answer is due.
    again_at: Option<Micros>,
}

impl CommitRun {
    pub(crate) fn new(epoch: Option<Epoch>, stages: Vec<Vec<BigQueryCommitInfo>>) -> Self {
        let rows = RowCount(stages.iter().flatten().map(|info| info.rows().0).sum());
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
                    trouble: Trouble::default(),
                    refreshed: false,
                    again_at: Some(shared.now),
                };
                self.flushes.insert(FlushId(*next_flush), flush);
            }
        }
        for (&id, flush) in &mut self.flushes {
            if flush.again_at.is_some_and(|at| at <= shared.now) {
                flush.again_at = None;
                shared.emit(Command::Flush {
                    flush: id,
                    stream: flush.info.stream.clone(),
                    offset: flush.info.flush_offset,
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
        let message = format!("the flush was answered with offset {offset} where {asked} was asked");
        self.retry(id, Budget::new(Class::StaleEnd, BEYOND_END), &message, shared)
    }

    /// A refusal. Returns what is visible all the same.
    pub(crate) fn failed(
        &mut self,
        id: FlushId,
        fault: &Fault,
        shared: &mut Shared,
    ) -> Result<Option<(StreamName, NextOffset)>, Failure> {
        let Some(flush) = self.flushes.get_mut(&id) else {
            return Ok(None);
        };
        let verdict = classify(Phase::Flush, fault);
        let text = format!("{fault} ({})", verdict.reason);
        let limits = &shared.limits;
        let budget = match verdict.reaction {
            Reaction::Success => {
                shared.notice(Notice::AlreadyFlushed);
                return Ok(self.done(id));
            }
            Reaction::RefreshCredentials if !flush.refreshed => {
                flush.refreshed = true;
                flush.again_at = Some(shared.now);
                shared.emit(Command::RefreshCredentials);
                return Ok(None);
            }
            Reaction::OffsetBeyondEnd => Budget::new(Class::StaleEnd, BEYOND_END),
            Reaction::FailSoon => Budget::new(Class::FailSoon, FAIL_SOON),
            Reaction::BackOff => Budget::new(Class::Quota, limits.quota_timeout.min(limits.commit_timeout)),
            Reaction::Resend => Budget::new(Class::Passing, limits.commit_timeout),
            Reaction::MaybeGone => Budget::new(Class::MaybeGone, limits.commit_timeout),
            _ => return self.unprovable(id, &text, shared),
        };
        self.retry(id, budget, &text, shared)
    }

    fn retry(
        &mut self,
        id: FlushId,
        budget: Budget,
        text: &str,
        shared: &mut Shared,
    ) -> Result<Option<(StreamName, NextOffset)>, Failure> {
        let salt = shared.salt.wrapping_add(id.0);
        let Some(flush) = self.flushes.get_mut(&id) else {
            return Ok(None);
        };
        match flush.trouble.next_pause(budget, shared.now, salt) {
            Some(pause) => {
                flush.again_at = Some(shared.now.after(pause));
                Ok(None)
            }
            None => self.unprovable(id, text, shared),
        }
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
            Unprovable::Fail => return Err(unprovable_failure(self.epoch, info, text, &shared.limits)),
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

fn unprovable_failure(
    epoch: Option<Epoch>,
    info: &BigQueryCommitInfo,
    text: &str,
    limits: &Limits,
) -> Failure {
    let of = epoch.map_or_else(|| "the end of data".into(), |epoch| format!("checkpoint {epoch}"));
    Failure {
        kind: FailureKind::Unprovable,
        message: format!(
            "rows {} to {} of stream {} cannot be shown to be visible for {of}, after up to {} s: {text}. \
             Look at the table: if the rows are there, run once with commit.unprovable = 'assume_visible'; if they are not, with 'accept_loss'",
            info.from_offset,
            info.flush_offset,
            info.stream,
            limits.commit_timeout.as_secs()
        ),
    }
}
