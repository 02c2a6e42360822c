//! Change data capture (write-api.md 6): rows that change others by primary key, on the default stream only.

use arrow_array::{Array, BooleanArray, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;

use super::behaviour::Behaviour;
use super::names::Target;
use super::partition;
use super::refusal::{Code, Refusal};
use super::switches::Switches;
use crate::catalog::{Millis, Table};
use crate::changes::{Change, ChangeKind, Changes, Sequence};
use crate::rows::{Bad, Decoded, RowErrors, change_refused};
use crate::schema::{Mode, Schema, conform};

/// Top-level columns that a table may have whose rows are changed (write-api.md 6).
const MOST_COLUMNS: usize = 2000;
/// Columns of their primary key.
const MOST_KEY_COLUMNS: usize = 16;

/// What a connection's rows do; its first ones decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowMode {
    /// Each is another row.
    Insert,
    /// Each changes the row with its key.
    Upsert,
}

/// A request's rows in the form of the table as it is.
#[derive(Debug)]
pub(super) enum Taken {
    /// To be added.
    Rows(RecordBatch),
    /// To change others.
    Changes(Changes),
}

impl Taken {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.num_rows(),
            Self::Changes(changes) => changes.order.len(),
        }
    }
}

/// The columns that a row must fill: with deletes among the rows, those of the primary key alone. Whether an upsert
/// fills the others is seen row by row.
pub(super) fn relaxed(schema: &Schema, table: &Table) -> Schema {
    let key = table.primary_key();
    let is_key = |name: &str| key.iter().any(|at| table.schema.columns[*at].is_named(name));
    let mut schema = schema.clone();
    for column in &mut schema.columns {
        if column.mode == Mode::Required && !is_key(&column.name) {
            column.mode = Mode::Nullable;
        }
    }
    schema
}

/// What the rows do, by what the connection's did before and what these say of themselves.
///
/// # Errors
/// A change where rows can only be inserted, or the other way round; and everything that change data capture asks for.
pub(super) fn sort(
    decoded: &Decoded,
    before: Option<RowMode>,
    table: &Table,
    target: &Target,
    switches: &Switches,
    now: Millis,
) -> Result<(Taken, RowMode), Refusal> {
    let before = before.filter(|_| switches.keeps(Behaviour::OneModePerConnection));
    if decoded.change_types.is_none() && decoded.sequence_numbers.is_none() && before != Some(RowMode::Upsert)
    {
        return inserted(decoded, table, target, switches, now);
    }
    let kinds = kinds(decoded);
    let on_default = target.default || !switches.keeps(Behaviour::ChangesOnDefaultStreamOnly);
    let first = if on_default && kinds.iter().any(|kind| matches!(kind, Some("UPSERT" | "DELETE"))) {
        RowMode::Upsert
    } else {
        RowMode::Insert
    };
    let mode = before.unwrap_or(first);
    if first == RowMode::Upsert {
        check_table(table, target, switches)?;
    }
    let mut errors = RowErrors::default();
    for (row, kind) in kinds.iter().enumerate() {
        check_kind(row, *kind, mode, switches, &mut errors);
    }
    let upserts: Vec<bool> = kinds.iter().map(|kind| *kind == Some("UPSERT")).collect();
    let asked = |row: usize| mode == RowMode::Insert || upserts[row];
    required(&decoded.rows, &table.schema, asked, &mut errors);
    if switches.keeps(Behaviour::PartitionsBounded) {
        partition::check(&decoded.rows, table, now, &mut errors);
    }
    let order = order(&upserts, decoded.sequence_numbers.as_ref(), switches, &mut errors);
    if !errors.is_empty() {
        return Err(errors.refused(switches, &target.name));
    }
    let taken = match mode {
        RowMode::Insert => conform(&decoded.rows, &table.schema).map(Taken::Rows),
        // Nothing can be found without a key, so there is nothing to change.
        RowMode::Upsert if table.primary_key().is_empty() => {
            upserted(&decoded.rows, &BooleanArray::from(upserts), table).map(Taken::Rows)
        }
        RowMode::Upsert => split(&decoded.rows, &upserts, order, table).map(Taken::Changes),
    };
    let taken = taken.map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
    Ok((taken, mode))
}

/// Rows that say nothing of changes; most do not, so that nothing is asked of each.
fn inserted(
    decoded: &Decoded,
    table: &Table,
    target: &Target,
    switches: &Switches,
    now: Millis,
) -> Result<(Taken, RowMode), Refusal> {
    let mut errors = RowErrors::default();
    required(&decoded.rows, &table.schema, |_| true, &mut errors);
    if switches.keeps(Behaviour::PartitionsBounded) {
        partition::check(&decoded.rows, table, now, &mut errors);
    }
    if !errors.is_empty() {
        return Err(errors.refused(switches, &target.name));
    }
    let rows = conform(&decoded.rows, &table.schema)
        .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
    Ok((Taken::Rows(rows), RowMode::Insert))
}

/// What each row says it is.
fn kinds(decoded: &Decoded) -> Vec<Option<&str>> {
    match &decoded.change_types {
        Some(kinds) => kinds.iter().collect(),
        None => vec![None; decoded.rows.num_rows()],
    }
}

/// The texts are of clients' reports: without a key debezium-server-bigquery #268; the width's is UNCONFIRMED.
fn check_table(table: &Table, target: &Target, switches: &Switches) -> Result<(), Refusal> {
    if !switches.keeps(Behaviour::UpsertsTaken) {
        return Err(change_refused(&target.name));
    }
    if table.primary_key().is_empty() && switches.keeps(Behaviour::UpsertNeedsPrimaryKey) {
        return Err(if switches.upsert_without_key_is_extra_field {
            change_refused(&target.name)
        } else {
            let text = "Create UPSERT stream is not supported for primary key disabled table";
            Refusal::invalid(format!("{text}: {}. Entity: {}", target.table, target.name))
        });
    }
    let key = table.primary_key().len();
    if key > MOST_KEY_COLUMNS && switches.keeps(Behaviour::KeyColumnsLimited) {
        let text = format!("A primary key has at most {MOST_KEY_COLUMNS} columns; this one has {key}");
        return Err(Refusal::invalid(format!("{text}. Entity: {}", target.name)));
    }
    let wide = table.schema.columns.len() > MOST_COLUMNS;
    if wide && switches.keeps(Behaviour::WideTablesTakeNoChanges) {
        let text = format!("Tables with more than {MOST_COLUMNS} top-level columns take no UPSERT or DELETE");
        return Err(Refusal::invalid(format!("{text}. Entity: {}", target.name)));
    }
    Ok(())
}

/// [PROD google-cloud-dotnet #11527, nodejs #470].
fn check_kind(row: usize, kind: Option<&str>, mode: RowMode, switches: &Switches, errors: &mut RowErrors) {
    let good = match (mode, kind) {
        (RowMode::Insert, None | Some("INSERT")) => {
            switches.keeps(Behaviour::InsertIsNoChange) || kind.is_none()
        }
        (RowMode::Upsert, Some("UPSERT" | "DELETE")) => true,
        _ => !switches.keeps(Behaviour::ChangeTypesChecked),
    };
    if !good {
        let mode = match mode {
            RowMode::Insert => " in insert mode",
            RowMode::Upsert => "",
        };
        let kind = kind.unwrap_or("NULL");
        errors.add(row, || {
            format!("The given value is not a valid CHANGE_TYPE{mode}: {kind} on field _CHANGE_TYPE.")
        });
    }
}

/// The REQUIRED columns that these rows leave out.
fn required(rows: &RecordBatch, schema: &Schema, asked: impl Fn(usize) -> bool, errors: &mut RowErrors) {
    let before = rows.schema();
    for (field, values) in before.fields().iter().zip(rows.columns()) {
        // The rows have the columns that those who append know, which may be others.
        let column = schema.columns.iter().find(|column| column.is_named(field.name()));
        let Some(column) = column.filter(|column| column.mode == Mode::Required && values.null_count() > 0)
        else {
            continue;
        };
        for row in (0..values.len()).filter(|row| values.is_null(*row) && asked(*row)) {
            errors.add(row, || Bad::null().on(&column.name));
        }
    }
}

/// The changes in their order, each with its rank.
fn order(
    upserts: &[bool],
    sequences: Option<&StringArray>,
    switches: &Switches,
    errors: &mut RowErrors,
) -> Vec<Change> {
    let (mut upsert, mut delete) = (0, 0);
    let mut order = Vec::with_capacity(upserts.len());
    for (row, is_upsert) in upserts.iter().enumerate() {
        let (kind, place) = if *is_upsert {
            (ChangeKind::Upsert, &mut upsert)
        } else {
            (ChangeKind::Delete, &mut delete)
        };
        let text = sequences
            .filter(|texts| texts.is_valid(row))
            .map(|texts| texts.value(row));
        let sequence = text.and_then(Sequence::parse);
        let sequence = if switches.short_sequence_padded {
            sequence.map(Sequence::padded)
        } else {
            sequence
        };
        if let Some(text) =
            text.filter(|_| sequence.is_none() && switches.keeps(Behaviour::SequenceNumbersChecked))
        {
            errors.add(row, || {
                format!("The given value is not a valid CHANGE_SEQUENCE_NUMBER: {text} on field _CHANGE_SEQUENCE_NUMBER.")
            });
        }
        let forgotten = kind == ChangeKind::Delete && !switches.keeps(Behaviour::DeletesRemembered);
        let ranked = switches.keeps(Behaviour::SequenceDecides) && !forgotten;
        let backwards = || {
            let lost = !switches.keeps(Behaviour::ArrivalDecides);
            lost.then(|| Sequence::parse(&format!("{:x}", u64::MAX - row as u64)))
        };
        order.push(Change {
            kind,
            row: *place,
            sequence: sequence.filter(|_| ranked).or_else(|| backwards().flatten()),
        });
        *place += 1;
    }
    order
}

fn upserted(rows: &RecordBatch, upsert: &BooleanArray, table: &Table) -> Result<RecordBatch, ArrowError> {
    conform(&filter_record_batch(rows, upsert)?, &table.schema)
}

/// Upserts whole, of deletes the keys.
fn split(
    rows: &RecordBatch,
    upserts: &[bool],
    order: Vec<Change>,
    table: &Table,
) -> Result<Changes, ArrowError> {
    let upsert = BooleanArray::from(upserts.to_vec());
    let delete = arrow::compute::not(&upsert)?;
    let upserts = upserted(rows, &upsert, table)?;
    let key = table.primary_key();
    let before = rows.schema();
    let place = |at: &usize| {
        let column = &table.schema.columns[*at];
        let place = before
            .fields()
            .iter()
            .position(|field| column.is_named(field.name()));
        place.ok_or_else(|| ArrowError::SchemaError(format!("there is no column {:?} yet", column.name)))
    };
    let places = key.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let deletes = filter_record_batch(&rows.project(&places)?, &delete)?;
    Ok(Changes {
        upserts,
        deletes,
        order,
    })
}
