//! What a running subtask has out: the streams with their ends, and what of them is not visible yet. The gauges and the status page read it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bigquery_sink_state::{
    BigQueryCommitInfo, Destination, Epoch, Micros, NextOffset, RowCount, StreamName, SubtaskState,
};

use super::families::Gauge;
use super::status::{StreamPhase, StreamStatus};

/// BigQuery keeps a BUFFERED stream for so long after its last append (write-api.md 2).
const STREAM_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A subtask between its start and its end.
#[derive(Debug, Default)]
pub(super) struct Live {
    streams: BTreeMap<StreamName, Stream>,
    /// Streams of the restored checkpoint, whose commit may have been confirmed; owed from the moment they are flushed.
    maybe_owed: BTreeMap<StreamName, Stream>,
    /// Bytes and number of the requests that are not acknowledged.
    pub(super) inflight: (u64, usize),
    last_committed: Option<Epoch>,
}

/// One write stream.
#[derive(Debug)]
struct Stream {
    of: Destination,
    phase: StreamPhase,
    next_offset: NextOffset,
    flushed: NextOffset,
    /// What is being flushed.
    asked: NextOffset,
    /// What is not visible, by checkpoints: where it ends, and when its first rows were acknowledged.
    unseen: VecDeque<(NextOffset, Micros)>,
    /// The last one's rows are in a checkpoint: what comes belongs to the next one.
    sealed: bool,
    last_append: Micros,
}

/// What a flush has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) of: Destination,
    /// End of what was known to be visible before.
    pub(super) from: NextOffset,
}

impl Stream {
    fn new(of: Destination, end: NextOffset, now: Micros) -> Self {
        Self {
            of,
            phase: StreamPhase::Open,
            next_offset: end,
            flushed: end,
            asked: end,
            unseen: VecDeque::new(),
            sealed: true,
            last_append: now,
        }
    }

    /// As a checkpoint of an earlier life left it.
    fn restored(of: Destination, info: &BigQueryCommitInfo, last_append: Micros) -> Self {
        let end = info.flush_offset.next_offset();
        Self {
            phase: StreamPhase::Left,
            next_offset: end,
            unseen: VecDeque::from([(end, last_append)]),
            ..Self::new(of, info.from_offset, last_append)
        }
    }

    fn unseen_rows(&self) -> u64 {
        self.next_offset.0.saturating_sub(self.flushed.0)
    }

    fn acknowledged(&mut self, end: NextOffset, now: Micros) {
        self.next_offset = self.next_offset.max(end);
        self.last_append = now;
        match self.unseen.back_mut() {
            Some((unseen, _)) if !self.sealed => *unseen = self.next_offset,
            _ => self.unseen.push_back((self.next_offset, now)),
        }
        self.sealed = false;
    }

    fn flushed(&mut self, end: NextOffset) {
        self.flushed = self.flushed.max(end);
        while self.unseen.front().is_some_and(|(end, _)| *end <= self.flushed) {
            self.unseen.pop_front();
        }
    }

    fn is_over(&self) -> bool {
        self.phase == StreamPhase::Left && self.next_offset <= self.flushed
    }
}

impl Live {
    /// What a restored checkpoint may still owe: this subtask's share of its commit.
    pub(super) fn restored(
        &mut self,
        states: &[&SubtaskState],
        is_expected: bool,
        of: impl Fn(&StreamName) -> Destination,
    ) {
        for state in states {
            for info in &state.commit.0 {
                let mut held = state.streams.iter();
                let held = held.find(|held| held.state.stream == info.stream);
                let last_append = Micros(held.map_or(state.incarnation.0, |held| held.last_append_micros));
                let stream = Stream::restored(of(&info.stream), info, last_append);
                let owed = if is_expected {
                    &mut self.streams
                } else {
                    &mut self.maybe_owed
                };
                owed.insert(info.stream.clone(), stream);
            }
        }
    }

    /// Rows can go to it from now on.
    pub(super) fn opened(&mut self, stream: &StreamName, of: Destination, now: Micros) {
        self.streams
            .entry(stream.clone())
            .or_insert_with(|| Stream::new(of, NextOffset(0), now));
    }

    /// Rows were acknowledged on a stream, up to this end; none for a default stream, which shows its rows at once and has no end.
    pub(super) fn acknowledged(
        &mut self,
        stream: &StreamName,
        end: Option<NextOffset>,
        rows: RowCount,
        now: Micros,
    ) {
        let Some(stream) = self.streams.get_mut(stream) else {
            return;
        };
        match end {
            Some(end) => stream.acknowledged(end, now),
            None => {
                stream.next_offset = stream.next_offset.plus(rows);
                stream.flushed = stream.next_offset;
                stream.last_append = now;
            }
        }
    }

    /// A checkpoint covers what was acknowledged.
    pub(super) fn prepared(&mut self) {
        for stream in self.streams.values_mut() {
            stream.sealed = true;
        }
    }

    /// No more rows go to it.
    pub(super) fn left(&mut self, stream: &StreamName) {
        if let Some(left) = self.streams.get_mut(stream) {
            left.phase = StreamPhase::Left;
            if left.is_over() {
                self.streams.remove(stream);
            }
        }
    }

    /// A flush is asked for.
    pub(super) fn asked(&mut self, stream: &StreamName, end: NextOffset) {
        if let Some((stream, owed)) = self.maybe_owed.remove_entry(stream) {
            self.streams.insert(stream, owed);
        }
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.asked = end;
        }
    }

    /// Rows of it are visible up to here.
    pub(super) fn flushed(&mut self, stream: &StreamName, end: NextOffset) -> Option<Shown> {
        let flushed = self.streams.get_mut(stream)?;
        let shown = Shown {
            of: flushed.of,
            from: flushed.flushed,
        };
        flushed.flushed(end);
        if flushed.is_over() {
            self.streams.remove(stream);
        }
        Some(shown)
    }

    /// What was asked for counts as done, whether anybody sees it or not.
    pub(super) fn accepted(&mut self, stream: &StreamName) {
        if let Some(asked) = self.streams.get(stream).map(|stream| stream.asked) {
            self.flushed(stream, asked);
        }
    }

    /// A checkpoint is committed, and so are those before it.
    pub(super) fn committed(&mut self, epoch: Epoch) {
        self.last_committed = self.last_committed.max(Some(epoch));
        self.maybe_owed.clear();
    }

    /// Streams that rows can go to.
    pub(super) fn open_streams(&self) -> usize {
        let open = self.streams.iter();
        open.filter(|(name, stream)| stream.phase == StreamPhase::Open && !name.is_default())
            .count()
    }

    pub(super) fn gauge(&self, gauge: Gauge, now: Micros) -> Option<f64> {
        match gauge {
            Gauge::UncommittedRows => Some(float(self.unseen_rows())),
            Gauge::OldestUncommittedSeconds => {
                Some(self.oldest_unseen(now).map_or(0.0, |age| age.as_secs_f64()))
            }
            Gauge::StreamExpirySeconds => self.expires_in(now).map(|left| left.as_secs_f64()),
            Gauge::InflightBytes => Some(float(self.inflight.0)),
            Gauge::InflightRequests => Some(float(self.inflight.1 as u64)),
            Gauge::LastCommittedEpoch => self.last_committed.map(|epoch| float(epoch.0)),
        }
    }

    pub(super) fn unseen_rows(&self) -> u64 {
        self.streams.values().map(Stream::unseen_rows).sum()
    }

    pub(super) fn oldest_unseen(&self, now: Micros) -> Option<Duration> {
        let oldest = self.streams.values();
        let oldest = oldest.filter_map(|stream| Some(stream.unseen.front()?.1)).min();
        oldest.map(|since| now.since(since))
    }

    fn expires_in(&self, now: Micros) -> Option<Duration> {
        let owing = self.streams.values().filter(|stream| stream.unseen_rows() > 0);
        let oldest = owing.map(|stream| stream.last_append).min();
        oldest.map(|append| append.after(STREAM_LIFE).since(now))
    }

    pub(super) fn last_committed(&self) -> Option<Epoch> {
        self.last_committed
    }

    pub(super) fn streams(&self) -> Vec<StreamStatus> {
        let status = |(name, stream): (&StreamName, &Stream)| StreamStatus {
            stream: name.0.clone(),
            destination: stream.of,
            next_offset: stream.next_offset.0,
            flushed: stream.flushed.0,
            phase: stream.phase,
        };
        self.streams.iter().map(status).collect()
    }
}

/// Exact up to 2^53, as all of Prometheus is.
fn float(count: u64) -> f64 {
    count as f64
}
