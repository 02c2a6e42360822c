//! `CREATE`, `ALTER` and `DROP SCHEMA`.

use serde_json::Map;

use super::{defined, refused};
use crate::catalog::Entity;
use crate::description::{check_labels, check_values_as_written};
use crate::query::ddl::{Name, Options, options};
use crate::query::{Answer, QueryError, Scope};

pub(super) fn create(
    scope: &Scope,
    name: &Name,
    if_not_exists: bool,
    given: &Options,
) -> Result<Answer, QueryError> {
    let name = scope.dataset(name)?;
    let location = options::location(given)?.unwrap_or_default();
    let mut rest = Map::new();
    options::dataset(&mut rest, given)?;
    check_labels(rest.get("labels"))?;
    check_values_as_written(&rest)?;
    let now = scope.shared.now();
    let done = |operation| defined("CREATE_SCHEMA", operation, Entity::Dataset(name.clone()));
    scope.shared.with(|machine| {
        if if_not_exists && machine.catalog().dataset(&name).is_ok() {
            return Ok(done("SKIP"));
        }
        if !scope.dry_run {
            machine
                .create_dataset(&name, &location, rest, now)
                .map_err(QueryError::Catalog)?;
        }
        Ok(done("CREATE"))
    })
}

pub(super) fn alter(
    scope: &Scope,
    name: &Name,
    if_exists: bool,
    given: &Options,
) -> Result<Answer, QueryError> {
    let name = scope.dataset(name)?;
    let now = scope.shared.now();
    let done = |operation| defined("ALTER_SCHEMA", operation, Entity::Dataset(name.clone()));
    scope.shared.with(|machine| {
        let mut rest = match machine.catalog().dataset(&name) {
            Ok(dataset) => dataset.rest.clone(),
            Err(_) if if_exists => return Ok(done("SKIP")),
            Err(error) => return Err(refused(machine.catalog(), error)),
        };
        options::dataset(&mut rest, given)?;
        check_labels(rest.get("labels"))?;
        check_values_as_written(&rest)?;
        if !scope.dry_run {
            machine
                .update_dataset(&name, rest, now)
                .map_err(QueryError::Catalog)?;
        }
        Ok(done("ALTER"))
    })
}

pub(super) fn drop(scope: &Scope, name: &Name, if_exists: bool, cascade: bool) -> Result<Answer, QueryError> {
    let name = scope.dataset(name)?;
    let done = |operation| defined("DROP_SCHEMA", operation, Entity::Dataset(name.clone()));
    scope.shared.with(|machine| {
        match machine.catalog().dataset(&name) {
            Err(_) if if_exists => return Ok(done("SKIP")),
            Err(error) => return Err(refused(machine.catalog(), error)),
            Ok(_) => {}
        }
        if !scope.dry_run {
            machine
                .delete_dataset(&name, cascade)
                .map_err(QueryError::Catalog)?;
        }
        Ok(done("DROP"))
    })
}
