//! Streams whose lives are over: calls on them are told so (write-api.md 2.4, 2.7, 3.2).

use std::collections::{BTreeMap, VecDeque};

use super::stream::Stream;

/// So many are remembered, the newest: as many as one commit may name.
const REMEMBERED: usize = 10_000;

/// The streams that were forgotten last, without their rows.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// By full name.
    streams: BTreeMap<String, Stream>,
    /// Their names, oldest first.
    order: VecDeque<String>,
}

impl Collected {
    /// Remembers a stream that is forgotten.
    pub(super) fn add(&mut self, stream: &Stream) {
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

    /// The stream, if it was one of the table with this id.
    pub(super) fn get(&self, name: &str, table_id: u64) -> Option<&Stream> {
        self.streams
            .get(name)
            .filter(|stream| stream.table_id == table_id)
    }

    /// Each of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.order.iter().filter_map(|name| self.streams.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Target;
    use super::super::stream::StreamKind;
    use super::*;

    #[test]
    fn the_newest_streams_are_remembered_and_no_more() {
        let stream = |number: usize| {
            let name = format!("projects/p/datasets/d/tables/t/streams/{number}");
            Stream::new(Target::parse(&name).unwrap(), 7, StreamKind::Buffered, 0)
        };
        let mut collected = Collected::default();
        for number in 1..=REMEMBERED + 1 {
            collected.add(&stream(number));
            // A name may come again.
            collected.add(&stream(number));
        }
        assert_eq!(
            (collected.iter().count(), collected.order.len()),
            (REMEMBERED, REMEMBERED)
        );
        let known = [1, 2, REMEMBERED + 1].map(|number| {
            let name = stream(number).target.name;
            (
                collected.get(&name, 7).is_some(),
                collected.get(&name, 8).is_some(),
            )
        });
        assert_eq!(known, [(false, false), (true, false), (true, false)]);
    }
}
