//! What is wrong with a pipeline's file: every mistake with its place and what to do.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::{Location, Span};

/// A place in the SQL file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// One mistake in a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineError {
    /// The file as it was named.
    pub file: String,
    /// Where.
    pub place: Place,
    /// What is wrong and what to do.
    pub message: String,
}

/// Every independent mistake of a pipeline, in the order of their places; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineErrors(pub Vec<PipelineError>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.place, self.message)
    }
}

impl fmt::Display for PipelineErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for PipelineErrors {}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self {
            line: location.line,
            column: location.column,
        }
    }
}

/// The start of a span, unless the parser left it empty (line 0).
pub(super) fn start_of(span: Span) -> Option<Place> {
    (span.start.line > 0).then(|| span.start.into())
}

/// Mistakes on their way to [`PipelineErrors`].
#[derive(Debug)]
pub(super) struct Mistakes {
    file: String,
    found: Vec<PipelineError>,
}

impl Mistakes {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            found: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, place: Place, message: impl Into<String>) {
        let error = PipelineError {
            file: self.file.clone(),
            place,
            message: message.into(),
        };
        if !self.found.contains(&error) {
            self.found.push(error);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// `Ok` with the value only if nothing was found.
    pub(super) fn or<T>(mut self, value: Option<T>) -> Result<T, PipelineErrors> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                if self.found.is_empty() {
                    // Whoever gives no value has said why; were it forgotten, an empty list would look like no mistake at all.
                    let message =
                        "this pipeline cannot be planned, for a reason that is not known; please report it";
                    self.add(Place { line: 1, column: 1 }, message);
                }
                self.found.sort_by_key(|error| error.place);
                Err(PipelineErrors(self.found))
            }
        }
    }
}

/// `; did you mean 'x'?` when one of the known names is near, else nothing.
pub(super) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::normalized_damerau_levenshtein(&name, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| format!("; did you mean '{candidate}'?"))
        .unwrap_or_default()
}
