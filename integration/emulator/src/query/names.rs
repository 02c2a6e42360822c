//! How names are completed that leave out the project or the dataset.

use crate::catalog::{DatasetRef, TableRef};
use crate::query::QueryError;

/// The dataset of every project that holds its views on the catalog.
const INFORMATION: &str = "INFORMATION_SCHEMA";

/// Where a statement's names are looked up.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// For names without a project.
    pub(super) project: String,
    /// For names without a dataset.
    pub(super) default_dataset: Option<DatasetRef>,
}

impl Names {
    /// A table. `d.INFORMATION_SCHEMA.TABLES` is the table `INFORMATION_SCHEMA.TABLES` of `d`, a name that no other
    /// table can have; its dataset may also be a region, or nothing.
    ///
    /// # Errors
    /// `Unqualified`, `Invalid`.
    pub(super) fn table(&self, parts: &[String]) -> Result<TableRef, QueryError> {
        let found = |project: &str, dataset: &str, table: &str| Ok(TableRef::new(project, dataset, table));
        match parts {
            [before @ .., information, view] if information == INFORMATION => {
                let view = format!("{INFORMATION}.{view}");
                match before {
                    [] => found(&self.project, "", &view),
                    // SCHEMATA is a view of projects, the others are views of datasets.
                    [project] if view.ends_with(".SCHEMATA") && !is_region(project) => {
                        found(project, "", &view)
                    }
                    [dataset] => found(&self.project, dataset, &view),
                    [project, dataset] => found(project, dataset, &view),
                    _ => Err(invalid(parts)),
                }
            }
            [project, dataset, table] => found(project, dataset, table),
            [dataset, table] => found(&self.project, dataset, table),
            [table] => match &self.default_dataset {
                Some(default) => found(&default.project, &default.dataset, table),
                None => Err(QueryError::Unqualified(table.clone())),
            },
            _ => Err(invalid(parts)),
        }
    }

    /// A dataset.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn dataset(&self, parts: &[String]) -> Result<DatasetRef, QueryError> {
        match parts {
            [project, dataset] => Ok(DatasetRef::new(project, dataset)),
            [dataset] => Ok(DatasetRef::new(&self.project, dataset)),
            _ => {
                let name = parts.join(".");
                let text = format!("Invalid dataset name: `{name}`. Write project.dataset.");
                Err(QueryError::Invalid(text))
            }
        }
    }
}

/// `region-eu`: no dataset can have a dash in its name.
pub(super) fn is_region(dataset: &str) -> bool {
    dataset.to_ascii_lowercase().starts_with("region-")
}

fn invalid(parts: &[String]) -> QueryError {
    let name = parts.join(".");
    QueryError::Invalid(format!(
        "Invalid table name: `{name}`. Write project.dataset.table."
    ))
}
