//! Changes of datasets and tables: what REST, DDL and the handle ask for, decided and applied.

use arrow_array::RecordBatch;
use serde_json::{Map, Value};

use super::Machine;
use super::behaviour::Behaviour;
use super::effect::Effect;
use crate::catalog::{CatalogError, Dataset, DatasetRef, Entity, Millis, Table, TableRef};
use crate::schema::Schema;

impl Machine {
    /// Creates a dataset; an empty location means `US`.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `NotKept`.
    pub fn create_dataset(
        &mut self,
        name: &DatasetRef,
        location: &str,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<&Dataset, CatalogError> {
        let dataset = self.catalog().new_dataset(name, location, rest, now)?;
        let name = name.clone();
        self.apply(&Effect::DatasetSet {
            name: name.clone(),
            dataset,
        })?;
        self.catalog().dataset(&name)
    }

    /// Replaces a dataset's description (every field of the REST resource that the server does not compute).
    ///
    /// # Errors
    /// `NotFound`, `NotKept`.
    pub fn update_dataset(
        &mut self,
        name: &DatasetRef,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<&Dataset, CatalogError> {
        let dataset = self.catalog().changed_dataset(name, rest, now)?;
        let effect = Effect::DatasetSet {
            name: name.clone(),
            dataset,
        };
        self.apply(&effect)?;
        self.catalog().dataset(name)
    }

    /// Deletes a dataset, with its tables if `with_tables`.
    ///
    /// # Errors
    /// `NotFound`, `InUse`, `NotKept`.
    pub fn delete_dataset(&mut self, name: &DatasetRef, with_tables: bool) -> Result<(), CatalogError> {
        if !self.catalog().dataset(name)?.tables.is_empty() && !with_tables {
            return Err(CatalogError::InUse(Entity::Dataset(name.clone())));
        }
        Ok(self.apply(&Effect::DatasetDeleted { name: name.clone() })?)
    }

    /// Creates an empty table.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (the dataset), `InvalidName`, `InvalidSchema`, `NotKept`.
    pub fn create_table(
        &mut self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<&Table, CatalogError> {
        if self
            .catalog()
            .dataset(&name.dataset_ref())?
            .tables
            .contains_key(&name.table)
        {
            return Err(CatalogError::AlreadyExists(Entity::Table(name.clone())));
        }
        self.replace_table(name, schema, rest, now)
    }

    /// Creates an empty table in place of the one of that name, if there is one: another table, with another id.
    ///
    /// # Errors
    /// `NotFound` (the dataset), `InvalidName`, `InvalidSchema`, `NotKept`.
    pub fn replace_table(
        &mut self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<&Table, CatalogError> {
        self.check_size(&schema)?;
        let table = self.catalog().new_table(name, schema, rest, now)?;
        self.apply(&Effect::TableCreated {
            name: name.clone(),
            table: Box::new(table),
        })?;
        self.catalog().table(name)
    }

    /// Creates a table with rows, in place of the one of that name if there is one, all at once. The rows have the
    /// table's canonical Arrow schema.
    ///
    /// # Errors
    /// As [`Machine::replace_table`]; `WrongColumns`.
    pub(crate) fn fill_table(
        &mut self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        rows: RecordBatch,
        now: Millis,
    ) -> Result<(), CatalogError> {
        if rows.schema() != schema.arrow() {
            return Err(CatalogError::WrongColumns(Entity::Table(name.clone())));
        }
        let table = self.catalog().new_table(name, schema, rest, now)?;
        let effect = Effect::TableFilled {
            name: name.clone(),
            revision: table.revision + 1,
            table: Box::new(table),
            rows,
            at_ms: now,
        };
        Ok(self.apply(&effect)?)
    }

    /// Replaces a table's columns and description. Its rows, and those held on its streams, take the new columns: NULL
    /// or an empty array in one that was not there.
    ///
    /// # Errors
    /// `NotFound`, `InvalidSchema`, `WrongColumns` (there are rows that cannot take them), `NotKept`.
    pub fn update_table(
        &mut self,
        name: &TableRef,
        schema: Schema,
        rest: Map<String, Value>,
        now: Millis,
    ) -> Result<&Table, CatalogError> {
        self.check_size(&schema)?;
        let table = self.catalog().changed_table(name, schema, rest, now)?;
        let mut streams = self.state.streams().values();
        if streams.any(|stream| stream.table_id == table.id && !stream.takes(&table.schema)) {
            return Err(CatalogError::WrongColumns(Entity::Table(name.clone())));
        }
        self.apply(&Effect::TableChanged {
            name: name.clone(),
            table: Box::new(table),
        })?;
        self.catalog().table(name)
    }

    /// write-api.md 4: a table has at most 10,000 columns.
    fn check_size(&self, schema: &Schema) -> Result<(), CatalogError> {
        if self.keeps(Behaviour::ColumnsLimited) {
            schema.check_size()?;
        }
        Ok(())
    }

    /// Takes away a table's rows; its streams, and the rows held on them, stay.
    ///
    /// # Errors
    /// `NotFound`, `NotKept`.
    pub fn truncate_table(&mut self, name: &TableRef, now: Millis) -> Result<(), CatalogError> {
        // An empty table of the same id in its place.
        let table = self.catalog().emptied_table(name, now)?;
        Ok(self.apply(&Effect::TableCreated {
            name: name.clone(),
            table: Box::new(table),
        })?)
    }

    /// Deletes a table and its rows. Its write streams die with it, since they name its id.
    ///
    /// # Errors
    /// `NotFound`, `NotKept`.
    pub fn delete_table(&mut self, name: &TableRef) -> Result<(), CatalogError> {
        self.catalog().table(name)?;
        Ok(self.apply(&Effect::TableDeleted { name: name.clone() })?)
    }

    /// Makes rows visible that did not come over a write stream of an application (default stream, `insertAll`, a
    /// query's INSERT). They have the table's canonical Arrow schema.
    ///
    /// # Errors
    /// `NotFound`, `WrongColumns`, `NotKept`.
    pub fn publish(&mut self, table: &TableRef, rows: RecordBatch, now: Millis) -> Result<(), CatalogError> {
        self.publish_to(&table.path(), table, rows, now)
    }

    /// As [`publish`](Self::publish), to the table or one day of it, as `path` says.
    pub(crate) fn publish_to(
        &mut self,
        path: &str,
        table: &TableRef,
        rows: RecordBatch,
        now: Millis,
    ) -> Result<(), CatalogError> {
        if rows.schema() != self.catalog().table(table)?.schema.arrow() {
            return Err(CatalogError::WrongColumns(Entity::Table(table.clone())));
        }
        let effect = Effect::RowsPublished {
            table: table.clone(),
            rows,
            partition_ms: self.partition_of(path, table, now),
            at_ms: now,
            revision: self.catalog().next_revision(),
        };
        Ok(self.apply(&effect)?)
    }
}
