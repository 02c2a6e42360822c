//! `CREATE` and `ALTER VIEW`.

use serde_json::{Map, json};

use super::tables::check_kind;
use super::{defined, exists, refused};
use crate::catalog::Entity;
use crate::description::Description;
use crate::machine::Machine;
use crate::query::ddl::{Create, CreateView, Name, Options, options};
use crate::query::{Answer, QueryError, Scope};
use crate::schema::Schema;

pub(super) async fn create(scope: &Scope, create: CreateView) -> Result<Answer, QueryError> {
    let name = scope.table(&create.name)?;
    let done = |operation| defined("CREATE_VIEW", operation, Entity::Table(name.clone()));
    let skip = |machine: &Machine| create.create == Create::IfNotExists && exists(machine, &name);
    if scope.shared.with(|machine| skip(machine)) {
        return Ok(done("SKIP"));
    }
    let mut schema = scope.view_schema(&name, &create.query).await?;
    rename(&mut schema, &create.columns)?;
    let now = scope.shared.now();
    let mut rest = Map::new();
    options::table(&mut rest, &create.options, now)?;
    let view = json!({ "query": create.query, "useLegacySql": false });
    rest.insert("view".to_owned(), view);
    let Description { schema, rest } = Description { schema, rest }.check(now)?;
    scope.shared.with(|machine| {
        if skip(machine) {
            return Ok(done("SKIP"));
        }
        let replaced = match machine.catalog().table(&name) {
            Ok(table) if create.create == Create::OrReplace => {
                check_kind(&name, table, "VIEW", "CREATE OR REPLACE")?;
                true
            }
            _ => false,
        };
        let operation = if replaced { "REPLACE" } else { "CREATE" };
        if scope.dry_run {
            return Ok(done(operation));
        }
        let made = match replaced {
            true => machine.replace_table(&name, schema, rest, now),
            false => machine.create_table(&name, schema, rest, now),
        };
        match made.map(|_| ()) {
            Ok(()) => Ok(done(operation)),
            Err(error) => Err(refused(machine.catalog(), error)),
        }
    })
}

pub(super) fn alter(
    scope: &Scope,
    name: &Name,
    if_exists: bool,
    given: Options,
) -> Result<Answer, QueryError> {
    let name = scope.table(name)?;
    let now = scope.shared.now();
    let done = |operation| defined("ALTER_VIEW", operation, Entity::Table(name.clone()));
    scope.shared.with(|machine| {
        let table = match machine.catalog().table(&name) {
            Ok(table) => table,
            Err(_) if if_exists => return Ok(done("SKIP")),
            Err(error) => return Err(refused(machine.catalog(), error)),
        };
        check_kind(&name, table, "VIEW", "ALTER")?;
        let mut new = Description {
            schema: table.schema.clone(),
            rest: table.rest.clone(),
        };
        options::table(&mut new.rest, &given, now)?;
        let new = new.check_change(&name, table, now)?;
        if !scope.dry_run {
            machine
                .update_table(&name, new.schema, new.rest, now)
                .map_err(QueryError::Catalog)?;
        }
        Ok(done("ALTER"))
    })
}

/// The columns under the names that the statement gives them.
fn rename(schema: &mut Schema, columns: &[(String, Options)]) -> Result<(), QueryError> {
    if columns.is_empty() {
        return Ok(());
    }
    if columns.len() != schema.columns.len() {
        let (names, found) = (columns.len(), schema.columns.len());
        return Err(QueryError::Invalid(format!(
            "The view has {names} column names, but its query has {found} columns"
        )));
    }
    for (column, (name, given)) in schema.columns.iter_mut().zip(columns) {
        column.name.clone_from(name);
        options::column(column, given)?;
    }
    Ok(())
}
