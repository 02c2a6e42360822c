//! Columns with default values: which rows get them, by `write.missing_values` and by what the pipeline writes.

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array as _, ArrayRef};
use bigquery_write_emulator::schema::{Column, Kind, Mode};

use super::*;

const RETURNS: &str = "projects/shop/datasets/sales/tables/returns";

fn with_default(name: &str, kind: Kind, mode: Mode, sql: &str) -> Column {
    Column {
        default_value_expression: Some(sql.to_owned()),
        ..Column::new(name, kind, mode)
    }
}

fn text() -> Kind {
    Kind::String { max_length: None }
}

/// A world with the table `returns`: NULLABLE, REQUIRED and REPEATED columns with defaults, and one without.
fn world(missing_values: &str) -> World {
    world_of(missing_values, "arrow")
}

fn world_of(missing_values: &str, format: &str) -> World {
    let world = World::with(&[
        ("table", "returns"),
        ("write.missing_values", missing_values),
        ("write.format", format),
    ]);
    let columns = vec![
        Column::new("id", Kind::Int64, Mode::Required),
        with_default("state", text(), Mode::Nullable, "'new'"),
        with_default("rank", Kind::Int64, Mode::Required, "7"),
        with_default("tags", text(), Mode::Repeated, "['a', 'b']"),
        with_default(
            "made",
            Kind::Timestamp,
            Mode::Required,
            "TIMESTAMP '2026-01-02 03:04:05+00'",
        ),
        Column::new("note", text(), Mode::Nullable),
    ];
    world.handle.create_table(&returns(), Schema { columns }).unwrap();
    world
}

fn returns() -> TableRef {
    TableRef::new("shop", "sales", "returns")
}

fn list(values: &[Option<&[&str]>]) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new());
    for value in values {
        list.append_option(value.map(|value| value.iter().map(|text| Some(*text))));
    }
    Arc::new(list.finish())
}

/// A sink for these columns, which it is handed over with; all nullable but the first.
async fn write(world: &World, columns: Vec<(&str, ArrayRef)>) -> Result<(), SinkError> {
    let fields = columns.iter().enumerate();
    let fields = fields.map(|(at, (name, array))| Field::new(*name, array.data_type().clone(), at > 0));
    let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let mut sink = world.sink(0, 1);
    sink.columns = Arc::clone(&schema);
    sink.on_start(None).await?;
    sink.process_batch(RecordBatch::try_new(schema, arrays).unwrap())
        .await?;
    let taken = checkpoint(1, &mut sink).await;
    commit(1, &taken, &mut sink).await;
    Ok(())
}

/// Each visible row: state, rank, tags, made in µs, note.
fn seen(world: &World) -> Vec<String> {
    let rows = world.handle.rows(&returns()).unwrap();
    let text = |column: usize, row: usize| {
        let column = rows.column(column).as_string::<i32>();
        if column.is_null(row) {
            "NULL".to_owned()
        } else {
            column.value(row).to_owned()
        }
    };
    let row = |row: usize| {
        let rank = rows.column(2).as_primitive::<Int64Type>().value(row);
        let tags = rows.column(3).as_list::<i32>().value(row);
        let tags: Vec<_> = tags
            .as_string::<i32>()
            .iter()
            .flatten()
            .map(str::to_owned)
            .collect();
        let made = rows
            .column(4)
            .as_primitive::<TimestampMicrosecondType>()
            .value(row);
        format!("{} {rank} {tags:?} {made} {}", text(1, row), text(5, row))
    };
    (0..rows.num_rows()).map(row).collect()
}

/// 2026-01-02 03:04:05 UTC.
const MADE: i64 = 1_767_323_045_000_000;

#[tokio::test(start_paused = true)]
async fn a_column_the_pipeline_does_not_write_gets_its_default_also_if_it_is_required() {
    // reports.md 70.
    for missing_values in ["null", "default"] {
        let world = world(missing_values);
        let columns = vec![("id", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)];
        write(&world, columns).await.unwrap();
        let row = format!("new 7 [\"a\", \"b\"] {MADE} NULL");
        assert_eq!(seen(&world), [row.clone(), row], "{missing_values}");
    }
}

/// State, tags and note: with a value, with NULL, and empty.
fn three_rows() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        (
            "state",
            Arc::new(StringArray::from(vec![Some("old"), None, Some("")])),
        ),
        ("tags", list(&[Some(&["x"]), None, Some(&[])])),
        (
            "note",
            Arc::new(StringArray::from(vec![Some("n"), None, Some("")])),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn null_in_a_written_column_is_null_or_the_default_as_the_option_says() {
    let world = self::world("null");
    write(&world, three_rows()).await.unwrap();
    assert_eq!(
        seen(&world),
        [
            format!("old 7 [\"x\"] {MADE} n"),
            format!("NULL 7 [] {MADE} NULL"),
            format!(" 7 [] {MADE} ")
        ]
    );

    let world = self::world("default");
    write(&world, three_rows()).await.unwrap();
    assert_eq!(
        seen(&world),
        [
            format!("old 7 [\"x\"] {MADE} n"),
            format!("new 7 [\"a\", \"b\"] {MADE} NULL"),
            format!(" 7 [] {MADE} ")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn null_in_a_required_column_is_an_error_unless_a_default_takes_its_place() {
    let ranks = || {
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let rank: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        vec![("id", id), ("rank", rank)]
    };
    let error = write(&world("null"), ranks()).await.unwrap_err();
    let text = "1 row does not fit the table: row 2 of the batch, column `rank`: NULL in a REQUIRED column";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));

    let world = world("default");
    write(&world, ranks()).await.unwrap();
    let row = |rank| format!("new {rank} [\"a\", \"b\"] {MADE} NULL");
    assert_eq!(seen(&world), [row(1), row(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_default_still_takes_the_place_of_null_after_a_reconnect() {
    let world = world("default");
    world.fault(
        r#"{"rpc": "AppendRows", "occurrence": {"nth": 1}, "action": {"kind": "refuse", "code": "UNAVAILABLE", "message": "away"}}"#,
    );
    write(&world, three_rows()).await.unwrap();
    assert_eq!(world.reconnects(), 1);
    assert_eq!(seen(&world)[1], format!("new 7 [\"a\", \"b\"] {MADE} NULL"));
}

#[tokio::test(start_paused = true)]
async fn a_required_column_without_default_that_the_pipeline_does_not_write_fails_the_start() {
    let world = world("default");
    let columns = vec![("note", Arc::new(StringArray::from(vec!["n"])) as ArrayRef)];
    let error = write(&world, columns).await.unwrap_err();
    let text = format!(
        "1 column of the pipeline does not fit table {RETURNS}:\n  column `id`: the table requires INT64 NOT NULL without default, the \
         pipeline does not write it; add it to the query, or make it nullable"
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
}

#[tokio::test(start_paused = true)]
async fn in_protobuf_an_empty_array_is_none_and_gets_the_default_too() {
    let world = world_of("default", "proto");
    write(&world, three_rows()).await.unwrap();
    assert_eq!(
        seen(&world),
        [
            format!("old 7 [\"x\"] {MADE} n"),
            format!("new 7 [\"a\", \"b\"] {MADE} NULL"),
            format!(" 7 [\"a\", \"b\"] {MADE} ")
        ]
    );
    let world = world_of("null", "proto");
    write(&world, three_rows()).await.unwrap();
    assert_eq!(
        seen(&world)[1..],
        [format!("NULL 7 [] {MADE} NULL"), format!(" 7 [] {MADE} ")]
    );
}
