//! What happens to rows that do not fit: `row_errors` and `dead_letter.*`.

use bigquery_write_proto::names::{TableId, TableName};

use super::{MissingValues, Reader, SchemaUpdate, SinkOptions, TableLayout, placeholder};

/// What happens to a row that does not fit the table, or that BigQuery refuses.
#[derive(Clone, Debug, PartialEq)]
pub enum RowErrors {
    /// The job stops: a restart would meet the row again.
    Fail,
    /// The row goes to the dead-letter table.
    DeadLetter {
        /// `dead_letter.table`, in the dataset of the table.
        table: TableName,
        /// `dead_letter.max_ratio`: the job stops when more than this part of the newest rows was refused.
        max_ratio: f64,
    },
}

impl SinkOptions {
    /// The options under which dead letters are written, if they are. What `table.*` says is about the other table.
    #[must_use]
    pub(crate) fn for_dead_letters(&self) -> Option<Self> {
        let RowErrors::DeadLetter { table, .. } = &self.row_errors else {
            return None;
        };
        Some(Self {
            table: table.clone(),
            row_errors: RowErrors::Fail,
            missing_values: MissingValues::Null,
            layout: TableLayout::default(),
            schema_update: SchemaUpdate::default(),
            primary_key: Vec::new(),
            ..self.clone()
        })
    }
}

impl Reader<'_> {
    /// `table` is the one that rows go to, if its name is right.
    pub(super) fn row_errors(&mut self, table: Option<&TableName>) -> RowErrors {
        if self.word("row_errors") != "dead_letter" {
            for option in ["dead_letter.table", "dead_letter.max_ratio"] {
                if self.given.contains_key(option) {
                    let message = format!("option '{option}' has no use without row_errors = 'dead_letter'");
                    self.problem(option, message);
                }
            }
            return RowErrors::Fail;
        }
        let max_ratio = self.ratio("dead_letter.max_ratio");
        if !self.given.contains_key("dead_letter.table") {
            let message = "option 'dead_letter.table' is required with row_errors = 'dead_letter': the table that refused rows go to";
            self.problem("dead_letter.table", message.to_owned());
            return RowErrors::Fail;
        }
        let id = self.name("dead_letter.table", |text| TableId::new(text));
        let main = table.cloned().unwrap_or_else(placeholder);
        let (project, dataset) = (main.project().clone(), main.dataset().clone());
        let Some(id) = id else { return RowErrors::Fail };
        let dead_letters = TableName::new(project, dataset, id);
        // A partition belongs to its table.
        if table.is_some_and(|table| table.table().base() == dead_letters.table().base()) {
            let message = "option 'dead_letter.table' names the table that the rows go to; refused rows need another one";
            self.problem("dead_letter.table", message.to_owned());
        }
        RowErrors::DeadLetter {
            table: dead_letters,
            max_ratio,
        }
    }

    fn ratio(&mut self, option: &'static str) -> f64 {
        let given = self.word(option).parse().ok();
        let ratio = given.filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.unwrap_or_else(|| self.wrong_given(option, 1.0))
    }
}
