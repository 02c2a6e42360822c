//! Statements other than SELECT: what they do.

use crate::catalog::{Catalog, CatalogError, Entity, TableRef};
use crate::description::Invalid;
use crate::machine::Machine;
use crate::query::ddl::Statement;
use crate::query::{Answer, Ddl, QueryError, Scope, missing};

mod datasets;
mod insert;
mod tables;
mod views;

/// Runs one statement; of a dry run only what can be known without changing anything.
pub(super) async fn execute(scope: &Scope, statement: Statement) -> Result<Answer, QueryError> {
    match statement {
        Statement::CreateTable(create) => tables::create(scope, *create).await,
        Statement::AlterTable(alter) => tables::alter(scope, &alter),
        Statement::DropTable { name, if_exists } => tables::drop(scope, &name, if_exists, "TABLE"),
        Statement::TruncateTable { name } => tables::truncate(scope, &name),
        Statement::CreateView(create) => views::create(scope, *create).await,
        Statement::AlterView {
            name,
            if_exists,
            options,
        } => views::alter(scope, &name, if_exists, options),
        Statement::DropView { name, if_exists } => tables::drop(scope, &name, if_exists, "VIEW"),
        Statement::CreateSchema {
            name,
            if_not_exists,
            options,
        } => datasets::create(scope, &name, if_not_exists, &options),
        Statement::AlterSchema {
            name,
            if_exists,
            options,
        } => datasets::alter(scope, &name, if_exists, &options),
        Statement::DropSchema {
            name,
            if_exists,
            cascade,
        } => datasets::drop(scope, &name, if_exists, cascade),
        Statement::Insert(insert) => insert::insert(scope, insert).await,
    }
}

/// What a statement says that defines something.
fn defined(statement: &'static str, operation: &'static str, target: Entity) -> Answer {
    Answer {
        output: None,
        statement,
        ddl: Some(Ddl { operation, target }),
        dml: None,
    }
}

/// Whether there is a table or view of that name.
fn exists(machine: &Machine, name: &TableRef) -> bool {
    machine.catalog().table(name).is_ok()
}

/// The catalog's refusal in a query's words.
fn refused(catalog: &Catalog, error: CatalogError) -> QueryError {
    match error {
        CatalogError::NotFound(entity) => missing(catalog, entity),
        other => QueryError::Catalog(other),
    }
}

impl From<Invalid> for QueryError {
    fn from(error: Invalid) -> Self {
        Self::Invalid(error.0)
    }
}
