//! `CREATE`, `ALTER`, `DROP` and `TRUNCATE TABLE`.

use serde_json::{Map, Value, json};

use super::insert::convert;
use super::{defined, exists, refused};
use crate::catalog::{CatalogError, Entity, Millis, Table, TableRef};
use crate::description::Description;
use crate::machine::Machine;
use crate::query::ddl::{Action, AlterTable, Create, CreateTable, ForeignKey, Name, options};
use crate::query::{Answer, Dml, QueryError, QueryOutput, Scope};
use crate::schema::{Column, Mode, Schema};

pub(super) async fn create(scope: &Scope, mut create: CreateTable) -> Result<Answer, QueryError> {
    let name = scope.table(&create.name)?;
    let statement = match create.query {
        Some(_) => "CREATE_TABLE_AS_SELECT",
        None => "CREATE_TABLE",
    };
    let done = |operation| defined(statement, operation, Entity::Table(name.clone()));
    let skip = |machine: &Machine| create.create == Create::IfNotExists && exists(machine, &name);
    if scope.shared.with(|machine| skip(machine)) {
        return Ok(done("SKIP"));
    }
    let rows = match create.query.take() {
        Some(query) => Some(scope.select(query).await?),
        None => None,
    };
    let now = scope.shared.now();
    let description = describe(scope, &create, rows.as_ref(), now)?;
    let schema = &description.schema;
    let switches = scope.switches();
    let rows = rows.map(|rows| convert(&rows, schema, &switches));
    let rows = rows.transpose()?;
    scope.shared.with(|machine| {
        if skip(machine) {
            return Ok(done("SKIP"));
        }
        let replaced = exists(machine, &name);
        if create.create == Create::OrReplace
            && let Ok(table) = machine.catalog().table(&name)
        {
            check_kind(&name, table, "TABLE", "CREATE OR REPLACE")?;
        }
        if scope.dry_run {
            return Ok(done(if replaced { "REPLACE" } else { "CREATE" }));
        }
        let Description { schema, rest } = description.with_defaults(machine.catalog(), &name, now);
        let rows = rows.filter(|rows| rows.num_rows() > 0);
        let made = match (rows, create.create) {
            _ if replaced && create.create != Create::OrReplace => {
                Err(CatalogError::AlreadyExists(Entity::Table(name.clone())))
            }
            (Some(rows), _) => machine.fill_table(&name, schema, rest, rows, now),
            (None, _) => machine.replace_table(&name, schema, rest, now).map(|_| ()),
        };
        if let Err(error) = made {
            return Err(refused(machine.catalog(), error));
        }
        Ok(done(if replaced { "REPLACE" } else { "CREATE" }))
    })
}

/// The table that the statement describes.
fn describe(
    scope: &Scope,
    create: &CreateTable,
    rows: Option<&QueryOutput>,
    now: Millis,
) -> Result<Description, QueryError> {
    let columns = match (&create.columns, rows) {
        (Some(columns), Some(rows)) if columns.len() != rows.schema.columns.len() => {
            let text = "The number of columns in the column definition list does not match the number of columns \
                        produced by the query";
            return Err(QueryError::Invalid(text.to_owned()));
        }
        (Some(columns), _) => columns.clone(),
        (None, Some(rows)) => rows.schema.columns.clone(),
        (None, None) => Vec::new(),
    };
    let schema = Schema { columns };
    let mut rest = Map::new();
    if let Some(partition) = &create.partition {
        partition.check(&schema)?;
        let (field, json) = partition.json();
        rest.insert(field.to_owned(), json);
    }
    if !create.cluster.is_empty() {
        rest.insert("clustering".to_owned(), json!({ "fields": create.cluster }));
    }
    if let Some(collation) = &create.default_collation {
        rest.insert("defaultCollation".to_owned(), collation.as_str().into());
    }
    options::table(&mut rest, &create.options, now)?;
    if let Some(columns) = &create.primary_key {
        constraints(&mut rest).insert("primaryKey".to_owned(), json!({ "columns": columns }));
    }
    for key in &create.foreign_keys {
        add_foreign_key(scope, &mut rest, key, false)?;
    }
    Ok(Description { schema, rest }.check(now)?)
}

pub(super) fn alter(scope: &Scope, alter: &AlterTable) -> Result<Answer, QueryError> {
    let name = scope.table(&alter.name)?;
    let now = scope.shared.now();
    let done = |operation| defined("ALTER_TABLE", operation, Entity::Table(name.clone()));
    scope.shared.with(|machine| {
        let table = match machine.catalog().table(&name) {
            Ok(table) => table,
            Err(_) if alter.if_exists => return Ok(done("SKIP")),
            Err(error) => return Err(refused(machine.catalog(), error)),
        };
        check_kind(&name, table, "TABLE", "ALTER")?;
        let mut change = Change {
            scope,
            now,
            new: Description {
                schema: table.schema.clone(),
                rest: table.rest.clone(),
            },
        };
        alter.actions.iter().try_for_each(|action| change.act(action))?;
        let new = change.new.check_change(&name, table, now)?;
        if !scope.dry_run {
            machine
                .update_table(&name, new.schema, new.rest, now)
                .map_err(QueryError::Catalog)?;
        }
        Ok(done("ALTER"))
    })
}

pub(super) fn drop(
    scope: &Scope,
    name: &Name,
    if_exists: bool,
    kind: &'static str,
) -> Result<Answer, QueryError> {
    let name = scope.table(name)?;
    let statement = if kind == "VIEW" { "DROP_VIEW" } else { "DROP_TABLE" };
    let done = |operation| defined(statement, operation, Entity::Table(name.clone()));
    scope.shared.with(|machine| {
        match machine.catalog().table(&name) {
            Ok(table) => check_kind(&name, table, kind, "DROP")?,
            Err(_) if if_exists => return Ok(done("SKIP")),
            Err(error) => return Err(refused(machine.catalog(), error)),
        }
        if !scope.dry_run {
            machine.delete_table(&name).map_err(QueryError::Catalog)?;
        }
        Ok(done("DROP"))
    })
}

/// Whether a statement about tables is about a table, and one about views about a view.
pub(super) fn check_kind(name: &TableRef, table: &Table, kind: &str, verb: &str) -> Result<(), QueryError> {
    let found = if table.is_view() { "VIEW" } else { "TABLE" };
    if found == kind {
        return Ok(());
    }
    Err(QueryError::Invalid(format!(
        "{name} is a {found}: use {verb} {found} in place of {verb} {kind}"
    )))
}

/// An ALTER TABLE on its way.
struct Change<'a> {
    scope: &'a Scope,
    now: Millis,
    new: Description,
}

impl Change<'_> {
    fn act(&mut self, action: &Action) -> Result<(), QueryError> {
        match action {
            Action::AddColumn {
                column,
                if_not_exists,
            } => {
                match (self.new.schema.column(&column.name), if_not_exists) {
                    (None, _) => self.new.schema.columns.push(column.clone()),
                    (Some(_), true) => {}
                    (Some(_), false) => {
                        return Err(QueryError::Invalid(format!(
                            "Column already exists: {}",
                            column.name
                        )));
                    }
                }
                Ok(())
            }
            Action::DropNotNull { column, if_exists } => self.column(column, *if_exists, |column| {
                if column.mode != Mode::Required {
                    let name = &column.name;
                    return Err(QueryError::Invalid(format!(
                        "Column {name} does not have a NOT NULL constraint"
                    )));
                }
                column.mode = Mode::Nullable;
                Ok(())
            }),
            Action::SetDefault {
                column,
                if_exists,
                expression,
            } => self.column(column, *if_exists, |column| {
                column.default_value_expression = Some(expression.clone());
                Ok(())
            }),
            Action::DropDefault { column, if_exists } => self.column(column, *if_exists, |column| {
                column.default_value_expression = None;
                Ok(())
            }),
            Action::SetColumnOptions {
                column,
                if_exists,
                options,
            } => self.column(column, *if_exists, |column| options::column(column, options)),
            Action::SetOptions(options) => options::table(&mut self.new.rest, options, self.now),
            Action::SetDefaultCollation(collation) => {
                self.new
                    .rest
                    .insert("defaultCollation".to_owned(), collation.as_str().into());
                Ok(())
            }
            Action::AddPrimaryKey {
                columns,
                if_not_exists,
            } => self.add_primary_key(columns, *if_not_exists),
            Action::AddForeignKey { key, if_not_exists } => {
                add_foreign_key(self.scope, &mut self.new.rest, key, *if_not_exists)
            }
            Action::DropPrimaryKey { if_exists } => {
                if constraints(&mut self.new.rest).remove("primaryKey").is_none() && !if_exists {
                    return Err(QueryError::Invalid("The table has no primary key".to_owned()));
                }
                Ok(())
            }
            Action::DropConstraint { name, if_exists } => self.drop_constraint(name, *if_exists),
        }
    }

    fn column(
        &mut self,
        name: &str,
        if_exists: bool,
        change: impl FnOnce(&mut Column) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let columns = &mut self.new.schema.columns;
        match columns.iter_mut().find(|column| column.is_named(name)) {
            Some(column) => change(column),
            None if if_exists => Ok(()),
            None => Err(QueryError::Invalid(format!("Column not found: {name}"))),
        }
    }

    fn add_primary_key(&mut self, columns: &[String], if_not_exists: bool) -> Result<(), QueryError> {
        let constraints = constraints(&mut self.new.rest);
        if constraints.contains_key("primaryKey") {
            if if_not_exists {
                return Ok(());
            }
            let text = "A table can have at most one primary key";
            return Err(QueryError::Invalid(text.to_owned()));
        }
        constraints.insert("primaryKey".to_owned(), json!({ "columns": columns }));
        Ok(())
    }

    fn drop_constraint(&mut self, name: &str, if_exists: bool) -> Result<(), QueryError> {
        let constraints = constraints(&mut self.new.rest);
        if name == "pk$" && constraints.remove("primaryKey").is_some() {
            return Ok(());
        }
        if let Some(Value::Array(keys)) = constraints.get_mut("foreignKeys") {
            let before = keys.len();
            keys.retain(|key| key.get("name").and_then(Value::as_str) != Some(name));
            if keys.len() < before {
                return Ok(());
            }
        }
        if if_exists {
            return Ok(());
        }
        Err(QueryError::Invalid(format!("Constraint not found: {name}")))
    }
}

/// `tableConstraints`, put there if need be.
fn constraints(rest: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let constraints = rest.entry("tableConstraints").or_insert(Value::Null);
    if !constraints.is_object() {
        *constraints = Value::Object(Map::new());
    }
    match constraints {
        Value::Object(constraints) => constraints,
        _ => unreachable!("it has just been made an object"),
    }
}

/// A key without a name gets `fk$1`, `fk$2`..., as in BigQuery.
fn add_foreign_key(
    scope: &Scope,
    rest: &mut Map<String, Value>,
    key: &ForeignKey,
    if_not_exists: bool,
) -> Result<(), QueryError> {
    if key.columns.len() != key.referenced.len() {
        let text = "A foreign key has as many columns as it refers to";
        return Err(QueryError::Invalid(text.to_owned()));
    }
    let table = scope.table(&key.table)?;
    let keys = constraints(rest)
        .entry("foreignKeys")
        .or_insert_with(|| json!([]));
    let Value::Array(keys) = keys else {
        return Err(QueryError::Internal("foreignKeys is no list".to_owned()));
    };
    let name = key
        .name
        .clone()
        .unwrap_or_else(|| format!("fk${}", keys.len() + 1));
    if keys
        .iter()
        .any(|other| other.get("name").and_then(Value::as_str) == Some(&name))
    {
        if if_not_exists {
            return Ok(());
        }
        return Err(QueryError::Invalid(format!("Constraint already exists: {name}")));
    }
    let pairs = key.columns.iter().zip(&key.referenced);
    let pairs: Value = pairs
        .map(|(from, to)| json!({ "referencingColumn": from, "referencedColumn": to }))
        .collect();
    keys.push(json!({
        "name": name,
        "referencedTable": { "projectId": table.project, "datasetId": table.dataset, "tableId": table.table },
        "columnReferences": pairs,
    }));
    Ok(())
}

pub(super) fn truncate(scope: &Scope, name: &Name) -> Result<Answer, QueryError> {
    let name = scope.table(name)?;
    let now = scope.shared.now();
    scope.shared.with(|machine| {
        let table = match machine.catalog().table(&name) {
            Ok(table) => table,
            Err(error) => return Err(refused(machine.catalog(), error)),
        };
        check_kind(&name, table, "TABLE", "TRUNCATE")?;
        let deleted = table.row_count();
        if !scope.dry_run {
            machine.truncate_table(&name, now).map_err(QueryError::Catalog)?;
        }
        Ok(Answer {
            output: None,
            statement: "TRUNCATE_TABLE",
            ddl: None,
            dml: Some(Dml { inserted: 0, deleted }),
        })
    })
}
