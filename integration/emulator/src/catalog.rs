//! What exists: datasets, tables, and the rows of each table that a reader can see.

use std::collections::BTreeMap;
use std::fmt;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::changes::Changes;
use crate::changes::rows::{Made, TableRows};
use crate::machine::NotKept;
use crate::schema::{Schema, SchemaError, conform};

/// Milliseconds since 1970-01-01 UTC.
pub type Millis = i64;

/// All datasets of all projects. Projects need no creation.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By project and dataset.
    pub datasets: BTreeMap<DatasetRef, Dataset>,
    tables_ever: u64,
    revisions: u64,
}

/// A dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// Where it lives; compared without regard to case. Fixed at creation.
    pub location: String,
    /// Created at.
    pub created_ms: Millis,
    /// Last changed at.
    pub modified_ms: Millis,
    /// Every other field of the REST resource (labels, description, access...), to be echoed as it came.
    pub rest: Map<String, Value>,
    /// Grows with each change; see [`Dataset::etag`].
    pub revision: u64,
    /// By name.
    #[serde(skip)]
    pub tables: BTreeMap<String, Table>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Unique over the catalog's life: a table deleted and created again under its name is another one.
    pub id: u64,
    /// Columns.
    pub schema: Schema,
    /// Created at.
    pub created_ms: Millis,
    /// Last changed at, by rows or by description.
    pub modified_ms: Millis,
    /// Every other field of the REST resource (description, labels, timePartitioning...), echoed as it came.
    pub rest: Map<String, Value>,
    /// Grows with each change, by rows or by description.
    pub revision: u64,
    /// Counts the changes of its columns.
    #[serde(default)]
    pub schema_version: u64,
    /// What its columns were, oldest first: those who append learn of a change late.
    #[serde(default)]
    earlier: Vec<Earlier>,
    #[serde(skip)]
    rows: TableRows,
}

/// Earlier columns kept of a table.
const EARLIER: usize = 64;

/// Columns that a table has no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Earlier {
    schema: Schema,
    version: u64,
    until_ms: Millis,
}

/// `project.dataset`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DatasetRef {
    /// Project id.
    pub project: String,
    /// Dataset id.
    pub dataset: String,
}

/// `project.dataset.table`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableRef {
    /// Project id.
    pub project: String,
    /// Dataset id.
    pub dataset: String,
    /// Table id.
    pub table: String,
}

/// Why the catalog refused; the text is Google's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// 409 `duplicate`.
    #[error("Already Exists: {0}")]
    AlreadyExists(Entity),
    /// 404 `notFound`.
    #[error("Not found: {0}")]
    NotFound(Entity),
    /// 400 `resourceInUse`: the dataset still has tables.
    #[error("{0} is still in use")]
    InUse(Entity),
    /// Rows that do not have the table's canonical Arrow schema.
    #[error("the rows do not have the columns of {0}")]
    WrongColumns(Entity),
    /// 400 `invalid`: a schema that BigQuery refuses.
    #[error(transparent)]
    InvalidSchema(#[from] SchemaError),
    /// 400 `invalid`.
    #[error("Invalid {what} ID \"{id}\". {rule}")]
    InvalidName {
        /// `dataset` or `table`.
        what: &'static str,
        /// As given.
        id: String,
        /// What is allowed.
        rule: &'static str,
    },
    /// 500 `internalError`: the emulator's journal cannot keep the change.
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

/// The thing an error is about, printed as `Table p:d.t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entity {
    /// A dataset.
    Dataset(DatasetRef),
    /// A table.
    Table(TableRef),
}

impl Catalog {
    /// The dataset.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn dataset(&self, name: &DatasetRef) -> Result<&Dataset, CatalogError> {
        self.datasets
            .get(name)
            .ok_or_else(|| CatalogError::NotFound(Entity::Dataset(name.clone())))
    }

    /// The datasets of one project, by name.
    pub fn datasets_of<'a>(
        &'a self,
        project: &'a str,
    ) -> impl Iterator<Item = (&'a DatasetRef, &'a Dataset)> + 'a {
        self.datasets
            .iter()
            .filter(move |(name, _)| name.project == project)
    }

    /// The table.
    ///
    /// # Errors
    /// `NotFound`: the dataset's if that is what is missing.
    pub fn table(&self, name: &TableRef) -> Result<&Table, CatalogError> {
        let dataset = self.dataset(&name.dataset_ref())?;
        dataset
            .tables
            .get(&name.table)
            .ok_or_else(|| CatalogError::NotFound(Entity::Table(name.clone())))
    }
}

/// Decisions: what a thing would be. The machine's methods make it so.
impl Catalog {
    pub(crate) fn new_dataset(
        &self,
        name: &DatasetRef,
        location: &str,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<Dataset, CatalogError> {
        check_dataset_id(&name.dataset)?;
        if self.datasets.contains_key(name) {
            return Err(CatalogError::AlreadyExists(Entity::Dataset(name.clone())));
        }
        let location = if location.is_empty() { "US" } else { location };
        Ok(Dataset {
            location: location.to_owned(),
            created_ms: now,
            modified_ms: now,
            rest,
            revision: self.next_revision(),
            tables: BTreeMap::new(),
        })
    }

    pub(crate) fn changed_dataset(
        &self,
        name: &DatasetRef,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<Dataset, CatalogError> {
        Ok(Dataset {
            modified_ms: now,
            rest,
            revision: self.next_revision(),
            ..self.dataset(name)?.without_tables()
        })
    }

    pub(crate) fn new_table(
        &self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<Table, CatalogError> {
        check_table_id(&name.table)?;
        schema.check_columns()?;
        self.dataset(&name.dataset_ref())?;
        Ok(Table {
            id: self.tables_ever + 1,
            schema,
            created_ms: now,
            modified_ms: now,
            rest,
            revision: self.next_revision(),
            schema_version: 0,
            earlier: Vec::new(),
            rows: TableRows::default(),
        })
    }

    pub(crate) fn changed_table(
        &self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<Table, CatalogError> {
        let before = self.table(name)?;
        schema.check_columns()?;
        if before.rows.map(|rows| conform(rows, &schema), |_| None).is_err() {
            return Err(CatalogError::WrongColumns(Entity::Table(name.clone())));
        }
        let mut earlier = before.earlier.clone();
        let changed = before.schema != schema;
        if changed {
            earlier.push(Earlier {
                schema: before.schema.clone(),
                version: before.schema_version,
                until_ms: now,
            });
            let surplus = earlier.len().saturating_sub(EARLIER);
            earlier.drain(..surplus);
        }
        Ok(Table {
            schema,
            modified_ms: now,
            rest,
            revision: self.next_revision(),
            schema_version: before.schema_version + u64::from(changed),
            earlier,
            ..before.without_rows()
        })
    }

    pub(crate) fn emptied_table(&self, name: &TableRef, now: Millis) -> Result<Table, CatalogError> {
        let mut table = self.table(name)?.clone();
        table.modified_ms = now;
        table.revision = self.next_revision();
        table.rows = TableRows::default();
        Ok(table)
    }

    pub(crate) fn next_revision(&self) -> u64 {
        self.revisions + 1
    }
}

/// What effects do. Only [`crate::machine`]'s state calls it.
impl Catalog {
    /// Creates a dataset without tables, or describes one anew.
    pub(crate) fn set_dataset(&mut self, name: &DatasetRef, dataset: Dataset) {
        self.count(0, dataset.revision);
        let tables = self.datasets.remove(name).map(|before| before.tables);
        let tables = tables.unwrap_or_default();
        self.datasets.insert(name.clone(), Dataset { tables, ..dataset });
    }

    pub(crate) fn remove_dataset(&mut self, name: &DatasetRef) {
        self.datasets.remove(name);
    }

    /// Puts a table there; a namesake goes.
    pub(crate) fn put_table(&mut self, name: &TableRef, table: Table) -> Result<(), CatalogError> {
        self.count(table.id, table.revision);
        let dataset = self.dataset_mut(&name.dataset_ref())?;
        dataset.tables.insert(name.table.clone(), table);
        Ok(())
    }

    /// Describes a table anew; its rows take the new columns.
    pub(crate) fn change_table(&mut self, name: &TableRef, table: Table) -> Result<(), CatalogError> {
        let before = self.table(name)?;
        let moved = |at: usize| before.schema.place_in(at, &table.schema);
        let rows = before.rows.map(|rows| conform(rows, &table.schema), moved);
        let rows = rows.map_err(|_| CatalogError::WrongColumns(Entity::Table(name.clone())))?;
        self.put_table(name, Table { rows, ..table })
    }

    pub(crate) fn remove_table(&mut self, name: &TableRef) -> Result<(), CatalogError> {
        let dataset = self.dataset_mut(&name.dataset_ref())?;
        let removed = dataset.tables.remove(&name.table);
        removed
            .map(drop)
            .ok_or_else(|| CatalogError::NotFound(Entity::Table(name.clone())))
    }

    /// Adds visible rows of one partition, and says how many there were before.
    pub(crate) fn push_rows(
        &mut self,
        name: &TableRef,
        (rows, partition): (RecordBatch, Option<Millis>),
        now: Millis,
        revision: u64,
    ) -> Result<u64, CatalogError> {
        let table = self.touch(name, now, revision)?;
        let before = table.rows.count();
        let good = rows.schema() == table.schema.arrow() && table.rows.push(rows, partition).is_ok();
        good.then_some(before)
            .ok_or_else(|| CatalogError::WrongColumns(Entity::Table(name.clone())))
    }

    /// Counts visible rows that are not kept, and says how many there were before.
    pub(crate) fn pass_rows(
        &mut self,
        name: &TableRef,
        rows: u64,
        now: Millis,
        revision: u64,
    ) -> Result<u64, CatalogError> {
        let table = self.touch(name, now, revision)?;
        let before = table.rows.count();
        table.rows.pass(rows);
        Ok(before)
    }

    /// Changes visible rows by their table's primary key, and says how many changes there were before.
    pub(crate) fn change_rows(
        &mut self,
        name: &TableRef,
        changes: &Changes,
        now: Millis,
        revision: u64,
    ) -> Result<u64, CatalogError> {
        let table = self.touch(name, now, revision)?;
        let key = table.primary_key();
        let before = table.rows.changed();
        let good = !key.is_empty()
            && changes.upserts.schema() == table.schema.arrow()
            && table.rows.change(&key, changes, now).is_ok();
        good.then_some(before)
            .ok_or_else(|| CatalogError::WrongColumns(Entity::Table(name.clone())))
    }

    fn touch(&mut self, name: &TableRef, now: Millis, revision: u64) -> Result<&mut Table, CatalogError> {
        self.count(0, revision);
        let dataset = self.dataset_mut(&name.dataset_ref())?;
        let table = dataset.tables.get_mut(&name.table);
        let table = table.ok_or_else(|| CatalogError::NotFound(Entity::Table(name.clone())))?;
        table.modified_ms = now;
        table.revision = revision;
        Ok(table)
    }

    /// How many tables and revisions there have been.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.tables_ever, self.revisions)
    }

    /// There have been so many tables and revisions at least.
    pub(crate) fn count(&mut self, tables: u64, revisions: u64) {
        self.tables_ever = self.tables_ever.max(tables);
        self.revisions = self.revisions.max(revisions);
    }

    fn dataset_mut(&mut self, name: &DatasetRef) -> Result<&mut Dataset, CatalogError> {
        self.datasets
            .get_mut(name)
            .ok_or_else(|| CatalogError::NotFound(Entity::Dataset(name.clone())))
    }
}

impl Dataset {
    /// Its description alone.
    pub(crate) fn without_tables(&self) -> Self {
        Self {
            location: self.location.clone(),
            created_ms: self.created_ms,
            modified_ms: self.modified_ms,
            rest: self.rest.clone(),
            revision: self.revision,
            tables: BTreeMap::new(),
        }
    }

    /// Changes whenever the dataset's description does.
    pub fn etag(&self) -> String {
        format!("ds-{:x}", self.revision)
    }
}

impl Table {
    /// Changes whenever the table's description does, and differs between a table and its namesake created later. Rows
    /// do not change it (UNCONFIRMED): whoever adds a column while others append could not do so by etag otherwise.
    pub fn etag(&self) -> String {
        // What is in memory can be written.
        let description = serde_json::to_vec(&(&self.schema, &self.rest)).unwrap_or_default();
        let checksum = crc32c::crc32c(&description);
        format!("tb-{:x}-{:x}-{checksum:x}", self.id, self.schema_version)
    }

    /// Visible rows in the order in which they became visible, in the schema's canonical Arrow types.
    pub fn rows(&self) -> &[RecordBatch] {
        self.rows.shown()
    }

    /// Of each batch of [`rows`](Self::rows), when the partition begins that its rows are in (`_PARTITIONTIME`), where that is known:
    /// of tables that are partitioned by the time of ingestion, and not changed by primary key.
    pub fn partitions(&self) -> Vec<Option<Millis>> {
        self.rows.partitions()
    }

    /// Indices of the primary key's columns, in its order; none without a primary key.
    pub fn primary_key(&self) -> Vec<usize> {
        let constraints = self.rest.get("tableConstraints");
        let names = constraints.and_then(|constraints| constraints.pointer("/primaryKey/columns"));
        let names = names.and_then(Value::as_array).into_iter().flatten();
        names
            .filter_map(Value::as_str)
            .filter_map(|name| {
                self.schema
                    .columns
                    .iter()
                    .position(|column| column.is_named(name))
            })
            .collect()
    }

    /// Its columns as they were known at that time, and their version.
    pub(crate) fn known_at(&self, at_ms: Millis) -> (&Schema, u64) {
        let earlier = self.earlier.iter().find(|earlier| earlier.until_ms > at_ms);
        earlier.map_or((&self.schema, self.schema_version), |earlier| {
            (&earlier.schema, earlier.version)
        })
    }

    /// It is a view: it has no rows, but a query.
    pub fn is_view(&self) -> bool {
        self.rest.contains_key("view")
    }

    /// The query of a view.
    pub fn view_query(&self) -> Option<&str> {
        self.rest.get("view")?.get("query")?.as_str()
    }

    /// How many rows are visible.
    pub fn row_count(&self) -> u64 {
        self.rows.count()
    }

    /// Its description alone.
    pub(crate) fn without_rows(&self) -> Self {
        Self {
            id: self.id,
            schema: self.schema.clone(),
            created_ms: self.created_ms,
            modified_ms: self.modified_ms,
            rest: self.rest.clone(),
            revision: self.revision,
            schema_version: self.schema_version,
            earlier: self.earlier.clone(),
            rows: TableRows::default(),
        }
    }

    /// What gives an empty table these rows, and what is known of their keys.
    pub(crate) fn made_of(&self) -> Vec<Made> {
        self.rows.made_of(&self.primary_key(), &self.schema.arrow())
    }

    /// Visible rows as one batch. Costs a copy.
    pub fn all_rows(&self) -> RecordBatch {
        let schema = self.schema.arrow();
        concat_batches(&schema, self.rows()).unwrap_or_else(|_| RecordBatch::new_empty(schema))
    }
}

impl DatasetRef {
    /// From its parts.
    pub fn new(project: impl Into<String>, dataset: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            dataset: dataset.into(),
        }
    }
}

impl TableRef {
    /// From its parts.
    pub fn new(project: impl Into<String>, dataset: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            dataset: dataset.into(),
            table: table.into(),
        }
    }

    /// Reads `projects/{p}/datasets/{d}/tables/{t}`.
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["projects", p, "datasets", d, "tables", t] if ![p, d, t].iter().any(|part| part.is_empty()) => {
                Some(Self::new(*p, *d, *t))
            }
            _ => None,
        }
    }

    /// `projects/{p}/datasets/{d}/tables/{t}`.
    pub fn path(&self) -> String {
        format!(
            "projects/{}/datasets/{}/tables/{}",
            self.project, self.dataset, self.table
        )
    }

    /// The dataset it is in.
    pub fn dataset_ref(&self) -> DatasetRef {
        DatasetRef::new(&self.project, &self.dataset)
    }
}

impl fmt::Display for DatasetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.project, self.dataset)
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.project, self.dataset, self.table)
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dataset(name) => write!(f, "Dataset {name}"),
            Self::Table(name) => write!(f, "Table {name}"),
        }
    }
}

fn check_dataset_id(id: &str) -> Result<(), CatalogError> {
    let rule =
        "Dataset IDs must be alphanumeric (plus underscores) and must be at most 1024 characters long.";
    let good =
        !id.is_empty() && id.len() <= 1024 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    good.then_some(()).ok_or_else(|| CatalogError::InvalidName {
        what: "dataset",
        id: id.to_owned(),
        rule,
    })
}

fn check_table_id(id: &str) -> Result<(), CatalogError> {
    let rule =
        "Table IDs must be alphanumeric (plus underscores, dashes and spaces) and at most 1024 bytes long.";
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
    let good = !id.is_empty() && id.len() <= 1024 && id.chars().all(allowed);
    good.then_some(()).ok_or_else(|| CatalogError::InvalidName {
        what: "table",
        id: id.to_owned(),
        rule,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn empty() -> Schema {
        Schema { columns: Vec::new() }
    }

    #[test]
    fn a_table_created_again_is_another_table() {
        let mut machine = Machine::default();
        let name = TableRef::new("p", "d", "t");
        machine
            .create_dataset(&name.dataset_ref(), "", Map::new(), 1)
            .unwrap();
        let first = machine.create_table(&name, empty(), Map::new(), 2).unwrap().id;
        let twice = machine.create_table(&name, empty(), Map::new(), 3).unwrap_err();
        assert_eq!(twice.to_string(), "Already Exists: Table p:d.t");
        machine.delete_table(&name).unwrap();
        assert_eq!(
            machine.catalog().table(&name).unwrap_err().to_string(),
            "Not found: Table p:d.t"
        );
        assert_ne!(
            machine.create_table(&name, empty(), Map::new(), 4).unwrap().id,
            first
        );
    }

    #[test]
    fn a_dataset_with_tables_is_deleted_only_on_request() {
        let mut machine = Machine::default();
        let name = TableRef::new("p", "d", "t");
        let dataset = name.dataset_ref();
        assert_eq!(
            machine
                .create_table(&name, empty(), Map::new(), 0)
                .unwrap_err()
                .to_string(),
            "Not found: Dataset p:d"
        );
        assert_eq!(
            machine
                .create_dataset(&dataset, "", Map::new(), 1)
                .unwrap()
                .location,
            "US"
        );
        machine.create_table(&name, empty(), Map::new(), 2).unwrap();
        let refused = machine.delete_dataset(&dataset, false).unwrap_err();
        assert_eq!(refused.to_string(), "Dataset p:d is still in use");
        machine.delete_dataset(&dataset, true).unwrap();
        assert_eq!(machine.catalog().datasets.len(), 0);
    }

    #[test]
    fn table_paths_are_read_strictly() {
        assert_eq!(
            TableRef::parse("projects/p/datasets/d/tables/t"),
            Some(TableRef::new("p", "d", "t"))
        );
        for bad in [
            "",
            "projects//datasets/d/tables/t",
            "projects/p/datasets/d/tables/t/",
            "p.d.t",
        ] {
            assert_eq!(TableRef::parse(bad), None, "{bad}");
        }
    }
}
