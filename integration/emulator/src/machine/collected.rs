//! PENDING streams that are gone: a commit that names one is told so (write-api.md 2.4, 3.2).

use std::collections::{BTreeMap, VecDeque};

use super::stream::{Stream, StreamKind};

/// So many are remembered, the newest: as many as one commit may name.
const REMEMBERED: usize = 10_000;

/// The PENDING streams that were forgotten last, without their rows.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// By full name.
    streams: BTreeMap<String, Stream>,
    /// Their names, oldest first.
    order: VecDeque<String>,
}

impl Collected {
    /// Remembers a stream that is forgotten, if a commit could have named it.
    pub(super) fn add(&mut self, stream: &Stream) {
        if stream.kind != StreamKind::Pending {
            return;
        }
        let name = &stream.target.name;
        if self.streams.insert(name.clone(), stream.without_rows()).is_none() {
            self.order.push_back(name.clone());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.streams.remove(&oldest);
        }
    }

    /// Whether there was such a stream, of the table with this id.
    pub(super) fn has(&self, name: &str, table_id: u64) -> bool {
        let stream = self.streams.get(name);
        stream.is_some_and(|stream| stream.table_id == table_id)
    }

    /// Each of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.order.iter().filter_map(|name| self.streams.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Target;
    use super::*;

    #[test]
    fn the_newest_pending_streams_are_remembered_and_no_more() {
        let stream = |number: usize, kind| {
            let name = format!("projects/p/datasets/d/tables/t/streams/{number}");
            Stream::new(Target::parse(&name).unwrap(), 7, kind, 0)
        };
        let mut collected = Collected::default();
        collected.add(&stream(0, StreamKind::Buffered));
        for number in 1..=REMEMBERED + 1 {
            collected.add(&stream(number, StreamKind::Pending));
            // A name may come again.
            collected.add(&stream(number, StreamKind::Pending));
        }
        assert_eq!(
            (collected.iter().count(), collected.order.len()),
            (REMEMBERED, REMEMBERED)
        );
        let known = [0, 1, 2, REMEMBERED + 1].map(|number| {
            let name = stream(number, StreamKind::Pending).target.name;
            (collected.has(&name, 7), collected.has(&name, 8))
        });
        assert_eq!(
            known,
            [(false, false), (false, false), (true, false), (true, false)]
        );
    }
}
