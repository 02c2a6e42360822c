//! What makes a pipeline the same pipeline: source, query, table and mode. Tuning options may change between runs on one state.

use std::collections::BTreeMap;

use crate::store::PipelineFingerprint;

/// Named parts of a pipeline's identity, each as canonical text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    pub(crate) fn with(mut self, part: &str, text: impl Into<String>) -> Self {
        self.0.insert(part.to_owned(), text.into());
        self
    }

    /// As the store keeps it: the parts themselves, so that a refusal can name what changed.
    pub(crate) fn to_stored(&self) -> PipelineFingerprint {
        let text = serde_json::to_string(&self.0).expect("a map of text to text is always JSON");
        PipelineFingerprint(text)
    }

    /// What is different from the stored one, one sentence a part; `None` if it is the same pipeline.
    pub(crate) fn difference(&self, stored: &PipelineFingerprint) -> Option<String> {
        if self.to_stored() == *stored {
            return None;
        }
        let Ok(old) = serde_json::from_str::<BTreeMap<String, String>>(&stored.0) else {
            return Some("it was written by another kind of pipeline".into());
        };
        let parts = self
            .0
            .keys()
            .chain(old.keys().filter(|part| !self.0.contains_key(*part)));
        let none = "nothing";
        let changes = parts.filter_map(|part| {
            let (was, is) = (old.get(part), self.0.get(part));
            (was != is).then(|| {
                let (was, is) = (was.map_or(none, String::as_str), is.map_or(none, String::as_str));
                format!("the {part} was {was} and is {is}")
            })
        });
        Some(changes.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_each_changed_part_with_both_texts() {
        let old = Fingerprint::default()
            .with("query", "SELECT a FROM t")
            .with("table", "p.d.t")
            .to_stored();
        let new = Fingerprint::default()
            .with("query", "SELECT b FROM t")
            .with("table", "p.d.t");
        assert_eq!(
            new.difference(&old).as_deref(),
            Some("the query was SELECT a FROM t and is SELECT b FROM t")
        );
        assert_eq!(new.difference(&new.to_stored()), None);
        let foreign = PipelineFingerprint("x".into());
        assert_eq!(
            new.difference(&foreign).as_deref(),
            Some("it was written by another kind of pipeline")
        );
    }
}
