//! Names of datasets and tables, for whoever fills in a form.

use std::sync::Arc;

use google_cloud_gax::paginator::ItemPaginator as _;

use super::Administration;
use crate::credentials::TokenSource;
use crate::error::SinkError;
use crate::options::SinkOptions;

/// More than these nobody scrolls through.
const MOST_DATASETS: usize = 50;
const MOST_TABLES: usize = 1000;

/// Datasets of a project, and the tables of all of them, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// At most 50.
    pub datasets: Vec<String>,
    /// At most 1000, each once.
    pub tables: Vec<String>,
}

/// The names in the project of the options' table. Needs `bigquery.datasets.get` and `bigquery.tables.list`; what may not be seen is left out by
/// BigQuery. Asks once.
///
/// # Errors
/// What BigQuery answers.
pub async fn names(options: &SinkOptions, tokens: Option<Arc<dyn TokenSource>>) -> Result<Names, SinkError> {
    let admin = Administration::connect(options, tokens, 1).await?;
    let project = options.table.project().as_str();
    let mut names = Names::default();
    let mut datasets = admin.datasets.list_datasets().set_project_id(project).by_item();
    while names.datasets.len() < MOST_DATASETS
        && let Some(dataset) = Box::pin(datasets.next()).await
    {
        let dataset = dataset.map_err(|error| failed("datasets", project, error))?;
        names
            .datasets
            .extend(dataset.dataset_reference.map(|reference| reference.dataset_id));
    }
    for dataset in &names.datasets {
        let list = admin
            .tables
            .list_tables()
            .set_project_id(project)
            .set_dataset_id(dataset);
        let mut tables = list.by_item();
        while names.tables.len() < MOST_TABLES
            && let Some(table) = Box::pin(tables.next()).await
        {
            let table = table.map_err(|error| failed("tables", project, error))?;
            names
                .tables
                .extend(table.table_reference.map(|reference| reference.table_id));
        }
    }
    names.datasets.sort_unstable();
    names.tables.sort_unstable();
    names.tables.dedup();
    Ok(names)
}

fn failed(what: &str, project: &str, error: google_cloud_bigquery_v2::Error) -> SinkError {
    let answer = error
        .status()
        .map_or_else(|| "no answer".to_owned(), |status| status.message.clone());
    SinkError::external(format!(
        "the {what} of project {project} cannot be listed: {answer}"
    ))
    .with_source(error)
}
