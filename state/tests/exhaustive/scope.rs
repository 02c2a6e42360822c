//! What one exploration covers: the job, and what may go wrong in it how often.

use std::fmt;
use std::ops::RangeInclusive;

use bigquery_sink_state::Mutation;

/// Everything of a bounded job.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Subtasks of the first life, the second, and so on; the last one repeats.
    pub(crate) parallelism: &'static [usize],
    /// Streams that a subtask writes side by side.
    pub(crate) lanes: usize,
    /// Rows of each batch, in the order of the source.
    pub(crate) batches: &'static [u8],
    /// Rows that BigQuery refuses, and those that the sink refuses itself: dead letters.
    pub(crate) bad: &'static [u8],
    pub(crate) unencodable: &'static [u8],
    /// BigQuery looks at the rows of a request before its offset; which comes first is not known.
    pub(crate) rows_first: bool,
    /// Epochs; the last one comes when the source has ended, and may be missing if an earlier one comes then.
    pub(crate) epochs: u64,
    pub(crate) ending: Ending,
    pub(crate) takeovers: u8,
    pub(crate) old_life: OldLife,
    /// Faults of these kinds, so many in all.
    pub(crate) faults: u8,
    pub(crate) kinds: &'static [Kind],
    /// Lives that they happen to.
    pub(crate) faulty: RangeInclusive<u8>,
    /// Where the order makes no difference one order is taken.
    pub(crate) reduced: bool,
    pub(crate) mutation: Mutation,
}

/// How the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a checkpoint, as the embedded host does.
    Checkpoint,
    /// With `EndOfData`, which may come before the replayed commit, as Arroyo does.
    EndOfData,
}

/// What becomes of a life when the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldLife {
    /// It crashed: what it had sent may still land.
    Crashed,
    /// It lives on and does all it would have done, until its host looks at the store.
    Zombie,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An append call ends; what is on its way may land, answers are lost.
    ConnectionLost,
    /// As before, with the status that another connection took the stream.
    Fenced,
    /// A request is refused for a passing reason.
    Refused,
    /// A request is refused for a passing reason and was taken all the same.
    RefusedThoughTaken,
    /// The server's end is stale (write-api.md 2.7).
    StaleEnd,
    /// A refusal comes as the end of the call.
    AnswerAsEnd,
    /// No answer comes within the time the core waits.
    Overdue,
    /// A stream could not be created; or was, and nobody is told.
    CreateFailed,
    /// A flush fails for a passing reason; done or not.
    FlushFailed,
    /// A stream is gone for good.
    Expired,
    /// Somebody else's row lands at the end of a stream. Where an answer is lost besides, nobody could tell it from one's own.
    ForeignRow,
    /// The host says a commit again.
    CommitRepeated,
}

pub(crate) const ALL_KINDS: &[Kind] = &[
    Kind::ConnectionLost,
    Kind::Fenced,
    Kind::Refused,
    Kind::RefusedThoughTaken,
    Kind::StaleEnd,
    Kind::AnswerAsEnd,
    Kind::Overdue,
    Kind::CreateFailed,
    Kind::FlushFailed,
    Kind::Expired,
    Kind::CommitRepeated,
    Kind::ForeignRow,
];

/// Those that nobody else causes.
const OWN_KINDS: &[Kind] = ALL_KINDS.split_at(ALL_KINDS.len() - 1).0;
/// A connection is lost, with it answers on their way, and what it carries may land late.
const LOST: &[Kind] = &[Kind::ConnectionLost];

impl Scope {
    /// What is explored, small ones first.
    pub(crate) fn all() -> Vec<Self> {
        vec![
            Self::job(&[2]),
            Self::job(&[1]).crash(),
            Self::job(&[2]).crash(),
            Self::job(&[1, 2]).crash(),
            Self::job(&[2, 1]).crash(),
            Self::job(&[2, 1]).crash().end_of_data(),
            Self::job(&[1, 2]).crash().end_of_data(),
            Self::job(&[1]).end_of_data().faults(1, ALL_KINDS),
            Self {
                takeovers: 2,
                ..Self::job(&[1]).crash()
            },
            Self::job(&[1]).faults(1, ALL_KINDS),
            Self {
                lanes: 2,
                ..Self::job(&[1]).crash()
            },
            Self::job(&[2]).faults(1, ALL_KINDS),
            Self::job(&[1]).zombie(),
            Self::job(&[2]).zombie(),
            Self::job(&[1]).crash().faults(1, ALL_KINDS),
            Self::job(&[1]).zombie().faults(1, LOST).in_lives(1..=1),
            Self::job(&[1]).zombie().faults(1, LOST).in_lives(2..=u8::MAX),
            Self {
                epochs: 2,
                ..Self::bad_rows(&[1]).crash()
            },
            Self::bad_rows(&[1]).faults(1, LOST),
            Self::bad_rows(&[1, 4]).faults(1, LOST),
            Self {
                unencodable: &[0],
                ..Self::bad_rows(&[4]).crash()
            },
            Self {
                lanes: 2,
                ..Self::bad_rows(&[1])
            },
            Self {
                rows_first: true,
                batches: &[1, 2, 1],
                ..Self::bad_rows(&[1, 2]).faults(1, ALL_KINDS)
            },
            Self {
                batches: &[1, 2, 1],
                ..Self::bad_rows(&[1, 2]).end_of_data().faults(1, LOST)
            },
            Self {
                epochs: 2,
                batches: &[1, 2],
                ..Self::bad_rows(&[1]).zombie()
            },
            Self {
                epochs: 2,
                parallelism: &[2, 1],
                ..Self::bad_rows(&[1, 3]).crash()
            },
            Self::bad_rows(&[1]).faults(1, ALL_KINDS),
            Self::bad_rows(&[1]).crash().faults(1, LOST),
        ]
    }

    /// A bad row with two requests behind it, so that two can be under way when it is refused.
    fn bad_rows(bad: &'static [u8]) -> Self {
        Self {
            batches: &[1, 2, 1, 1],
            bad,
            epochs: 1,
            ..Self::job(&[1])
        }
    }

    /// Small enough to be explored without reductions.
    pub(crate) fn small() -> Vec<Self> {
        vec![
            Self::job(&[2]).crash(),
            Self::job(&[2, 1]).crash().end_of_data(),
            Self {
                batches: &[1, 2],
                ..Self::job(&[1]).zombie()
            },
            Self {
                batches: &[1, 2],
                ..Self::job(&[1]).crash().faults(1, ALL_KINDS)
            },
            Self {
                batches: &[1],
                epochs: 1,
                ..Self::job(&[1]).zombie().faults(1, ALL_KINDS)
            },
            Self {
                batches: &[1, 2],
                epochs: 1,
                ..Self::job(&[1]).zombie().faults(1, LOST).in_lives(1..=1)
            },
            Self {
                batches: &[1, 2],
                epochs: 1,
                ..Self::job(&[1]).zombie().faults(1, LOST).in_lives(2..=u8::MAX)
            },
            Self {
                batches: &[1, 2, 1],
                ..Self::bad_rows(&[1]).crash()
            },
        ]
    }

    /// Larger ones, for minutes.
    pub(crate) fn deep() -> Vec<Self> {
        vec![
            Self {
                lanes: 2,
                ..Self::job(&[1]).faults(1, ALL_KINDS)
            },
            Self {
                takeovers: 2,
                ..Self::job(&[1, 2, 1]).crash()
            },
            Self::job(&[1, 2]).zombie(),
            Self::job(&[2, 1]).zombie(),
            Self::job(&[2, 1]).crash().faults(1, ALL_KINDS),
            Self::job(&[1, 2]).crash().faults(1, ALL_KINDS),
            Self::job(&[2]).crash().faults(1, ALL_KINDS),
            Self::job(&[2, 1]).crash().end_of_data().faults(1, ALL_KINDS),
            Self::job(&[2]).zombie().faults(1, LOST).in_lives(1..=1),
            Self::job(&[2]).zombie().faults(1, LOST).in_lives(2..=u8::MAX),
            Self {
                takeovers: 2,
                ..Self::job(&[1]).zombie()
            },
            Self::job(&[1]).faults(2, OWN_KINDS),
            Self {
                batches: &[1, 2],
                ..Self::job(&[1]).zombie().faults(1, ALL_KINDS)
            },
        ]
    }

    /// Three batches and two epochs, all going well.
    fn job(parallelism: &'static [usize]) -> Self {
        Self {
            parallelism,
            lanes: 1,
            batches: &[1, 2, 1],
            bad: &[],
            unencodable: &[],
            rows_first: false,
            epochs: 2,
            ending: Ending::Checkpoint,
            takeovers: 0,
            old_life: OldLife::Crashed,
            faults: 0,
            kinds: &[],
            faulty: 1..=u8::MAX,
            reduced: true,
            mutation: Mutation::default(),
        }
    }

    fn crash(self) -> Self {
        Self { takeovers: 1, ..self }
    }

    fn zombie(self) -> Self {
        Self {
            takeovers: 1,
            old_life: OldLife::Zombie,
            ..self
        }
    }

    fn end_of_data(self) -> Self {
        Self {
            ending: Ending::EndOfData,
            ..self
        }
    }

    fn faults(self, faults: u8, kinds: &'static [Kind]) -> Self {
        Self {
            faults,
            kinds,
            ..self
        }
    }

    fn in_lives(self, faulty: RangeInclusive<u8>) -> Self {
        Self { faulty, ..self }
    }

    /// Rows that become visible in the table, and those in the dead-letter table.
    pub(crate) fn rows(&self) -> (Vec<u8>, Vec<u8>) {
        (0..self.batches.iter().sum()).partition(|row| !self.is_dead_letter(*row))
    }

    pub(crate) fn is_dead_letter(&self, row: u8) -> bool {
        self.bad.contains(&row) || self.unencodable.contains(&row)
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        !self.bad.is_empty() || !self.unencodable.is_empty()
    }

    pub(crate) fn parallelism(&self, life: u8) -> usize {
        let index = usize::from(life) - 1;
        self.parallelism[index.min(self.parallelism.len() - 1)]
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.parallelism.iter().map(ToString::to_string).collect();
        write!(
            f,
            "subtasks {}, {} batches, {} epochs",
            counts.join(" then "),
            self.batches.len(),
            self.epochs
        )?;
        if !self.bad.is_empty() {
            write!(f, ", bad rows {:?}", self.bad)?;
        }
        if self.rows_first {
            write!(f, " looked at before offsets")?;
        }
        if !self.unencodable.is_empty() {
            write!(f, ", rows {:?} refused by the sink", self.unencodable)?;
        }
        if self.lanes > 1 {
            write!(f, ", {} streams each", self.lanes)?;
        }
        if self.ending == Ending::EndOfData {
            write!(f, ", end of data")?;
        }
        match self.old_life {
            _ if self.takeovers == 0 => {}
            OldLife::Crashed => write!(f, ", {} crash", self.takeovers)?,
            OldLife::Zombie => write!(f, ", {} takeover with a zombie", self.takeovers)?,
        }
        if self.faults > 0 {
            let kinds = match self.kinds.len() {
                all if all == ALL_KINDS.len() => "any kind".into(),
                own if own == OWN_KINDS.len() => "any kind but a foreign row".into(),
                _ => format!("{:?}", self.kinds),
            };
            write!(f, ", {} fault of {kinds}", self.faults)?;
        }
        match (*self.faulty.start(), *self.faulty.end()) {
            (1, u8::MAX) => Ok(()),
            (1, last) => write!(f, " up to life {last}"),
            (first, _) => write!(f, " from life {first} on"),
        }
    }
}
