//! Names of the store's files: the only place that forms or reads one.
//!
//! ```text
//! lock                                            local only: process id of the holder
//! generations/0000003                             one host's claim of a generation
//! checkpoints/0001-0000000012-g0000003-01.manifest   what a checkpoint holds, one file per attempt
//! checkpoints/0001-0000000012.claim               the epoch belongs to the manifest named in it: complete
//! checkpoints/0001-0000000012.committed           its commit is confirmed
//! ```

use bigquery_sink_state::Epoch;

/// Folder of generation records.
pub(super) const GENERATIONS: &str = "generations";
/// Folder of manifests, claims and markers.
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// File whose lock says that a local host runs.
pub(super) const LOCK: &str = "lock";

const MANIFEST: &str = ".manifest";
const CLAIM: &str = ".claim";
const COMMITTED: &str = ".committed";
const TEMPORARY: &str = ".tmp";

/// A checkpoint's place in time: the greatest is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CheckpointId {
    pub(super) lineage: u64,
    pub(super) epoch: Epoch,
}

/// What a file in the checkpoint folder is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    Manifest {
        id: CheckpointId,
        generation: u64,
        attempt: u64,
    },
    Claim(CheckpointId),
    Committed(CheckpointId),
    /// Left by a write that did not end.
    Temporary,
    /// Not ours: never touched.
    Unknown,
}

impl FileName {
    pub(super) fn parse(name: &str) -> Self {
        if name.starts_with('.') && name.ends_with(TEMPORARY) {
            return Self::Temporary;
        }
        // Only the exact spelling counts: what merely looks like a name of ours is left alone.
        parse_known(name)
            .filter(|known| known.to_string() == name)
            .unwrap_or(Self::Unknown)
    }
}

fn parse_known(name: &str) -> Option<FileName> {
    if let Some(stem) = name.strip_suffix(CLAIM) {
        return parse_id(stem).map(FileName::Claim);
    }
    if let Some(stem) = name.strip_suffix(COMMITTED) {
        return parse_id(stem).map(FileName::Committed);
    }
    let (id, writer) = name.strip_suffix(MANIFEST)?.split_once("-g")?;
    let (generation, attempt) = writer.split_once('-')?;
    Some(FileName::Manifest {
        id: parse_id(id)?,
        generation: generation.parse().ok()?,
        attempt: attempt.parse().ok()?,
    })
}

fn parse_id(stem: &str) -> Option<CheckpointId> {
    let (lineage, epoch) = stem.split_once('-')?;
    Some(CheckpointId {
        lineage: lineage.parse().ok()?,
        epoch: Epoch(epoch.parse().ok()?),
    })
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manifest {
                id,
                generation,
                attempt,
            } => {
                write!(f, "{id}-g{generation:07}-{attempt:02}{MANIFEST}")
            }
            Self::Claim(id) => write!(f, "{id}{CLAIM}"),
            Self::Committed(id) => write!(f, "{id}{COMMITTED}"),
            Self::Temporary => f.write_str("(temporary)"),
            Self::Unknown => f.write_str("(unknown)"),
        }
    }
}

impl std::fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:010}", self.lineage, self.epoch.0)
    }
}

/// Name of a generation's record.
pub(super) fn generation(number: u64) -> String {
    format!("{number:07}")
}

/// The generation a record's name says, if it is one.
pub(super) fn parse_generation(name: &str) -> Option<u64> {
    let number = name.parse().ok()?;
    (generation(number) == name).then_some(number)
}

/// Name to write a file under before it gets its own; in the same folder, since a link must not leave it.
pub(super) fn temporary(name: &str) -> String {
    format!(".{name}.{}{TEMPORARY}", uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CheckpointId = CheckpointId {
        lineage: 1,
        epoch: Epoch(12),
    };

    #[test]
    fn names_are_stable_and_parse_back() {
        let named = [
            (FileName::Claim(ID), "0001-0000000012.claim"),
            (FileName::Committed(ID), "0001-0000000012.committed"),
            (
                FileName::Manifest {
                    id: ID,
                    generation: 3,
                    attempt: 1,
                },
                "0001-0000000012-g0000003-01.manifest",
            ),
            (
                FileName::Claim(CheckpointId {
                    lineage: 12_345,
                    epoch: Epoch(98_765_432_100),
                }),
                "12345-98765432100.claim",
            ),
        ];
        for (name, text) in named {
            assert_eq!(name.to_string(), text);
            assert_eq!(FileName::parse(text), name);
        }
        assert_eq!(generation(3), "0000003");
        assert_eq!(parse_generation("0000003"), Some(3));
        assert_eq!(
            FileName::parse(&temporary("0001-0000000012.claim")),
            FileName::Temporary
        );
    }

    #[test]
    fn a_name_that_only_looks_like_ours_is_unknown() {
        for text in [
            "1-12.claim",
            "0001-0000000012.claim~",
            "+001-0000000012.claim",
            "0001-0000000012.manifest",
            "0001-0000000012-g0000003-1.manifest",
            "notes.txt",
            ".claim",
            "",
        ] {
            assert_eq!(FileName::parse(text), FileName::Unknown, "{text:?}");
        }
        assert_eq!(parse_generation("3"), None);
        assert_eq!(parse_generation("0000003.tmp"), None);
    }
}
