//! T18 and T19: what a batch has and has not of what the DDL says. That a table is made with the types and the NOT NULL of the DDL is
//! among the stub's tests.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, StringViewArray, TimestampNanosecondArray,
};
use arrow_schema::{DataType, Field, SchemaRef};
use bigquery_sink::engine::{COMMIT_TABLE, Controller, Declared, EngineSink};
use bigquery_sink::{Blame, Retry};
use bigquery_write_emulator::catalog::TableRef;

use crate::engine::{Engine, columns, edge, ids, timestamp, told};

/// What a reader sees of `table` after one epoch with this batch.
async fn written(engine: &Engine, mut sink: EngineSink, table: &str, batch: &RecordBatch) -> RecordBatch {
    sink.on_start(engine.task(0, 1), batch.schema_ref(), &HashMap::new())
        .await
        .unwrap();
    sink.process_batch(batch).await.unwrap();
    let part = sink.handle_checkpoint(1, false).await.unwrap();
    let entries = HashMap::from([(0, part.commit.unwrap())]);
    let data = HashMap::from([(COMMIT_TABLE.to_owned(), entries)]);
    sink.handle_commit(1, &data).await.unwrap();
    engine
        .handle
        .rows(&TableRef::new("shop", "sales", table))
        .unwrap()
}

fn batch(schema: SchemaRef, more: Vec<ArrayRef>) -> RecordBatch {
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids(0, 2))),
        Arc::new(StringArray::from(vec!["zero", "one"])),
    ];
    arrays.extend(more);
    RecordBatch::try_new(schema, arrays).unwrap()
}

fn times() -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from(vec![1_000_000, 2_000_000]))
}

#[tokio::test(start_paused = true)]
async fn t18_the_engines_own_column_is_left_out() {
    let engine = Engine::new(Controller::Controller);
    let sink = engine.sink(Declared::default());
    let seen = written(&engine, sink, "orders", &batch(edge(&[]), vec![times()])).await;
    assert_eq!(seen.num_columns(), 2);
    assert_eq!(seen.column(0).as_primitive::<Int64Type>().values(), &[0, 1]);
}

#[tokio::test(start_paused = true)]
async fn t18_the_engines_own_column_is_left_out_wherever_it_stands() {
    let engine = Engine::new(Controller::Controller);
    let fields = [
        vec![timestamp()],
        columns(&[])
            .fields()
            .iter()
            .map(|field| (**field).clone())
            .collect(),
    ]
    .concat();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let arrays: Vec<ArrayRef> = vec![
        times(),
        Arc::new(Int64Array::from(ids(0, 2))),
        Arc::new(StringArray::from(vec!["zero", "one"])),
    ];
    let batch = RecordBatch::try_new(schema, arrays).unwrap();
    let seen = written(&engine, engine.sink(Declared::default()), "orders", &batch).await;
    assert_eq!(seen.column(1).as_string::<i32>().value(1), "one");
}

#[tokio::test(start_paused = true)]
async fn t18_a_table_with_such_a_column_gets_it() {
    let engine = Engine::with_table(Controller::Controller, "timed", &columns(&[timestamp()]));
    let sink = engine.sink(Declared::default());
    let seen = written(&engine, sink, "timed", &batch(edge(&[]), vec![times()])).await;
    let times = seen.column(2).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values(), &[1_000, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn t18_a_required_column_takes_a_nullable_expression_and_refuses_nulls() {
    let engine = Engine::with_table(
        Controller::Controller,
        "keyed",
        &columns(&[Field::new("key", DataType::Int64, false)]),
    );
    let declared = Declared {
        columns: columns(&[Field::new("key", DataType::Int64, false)])
            .fields()
            .to_vec(),
        primary_key: vec!["key".to_owned()],
    };
    let nullable = || edge(&[Field::new("key", DataType::Int64, true)]);
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
    let whole = batch(nullable(), vec![keys, times()]);
    let seen = written(&engine, engine.sink(declared.clone()), "keyed", &whole).await;
    assert_eq!(seen.column(2).as_primitive::<Int64Type>().values(), &[7, 8]);

    let keys: ArrayRef = Arc::new(Int64Array::from(vec![Some(9), None]));
    let mut sink = engine.sink(declared);
    sink.on_start(engine.task(0, 1), &nullable(), &HashMap::new())
        .await
        .unwrap();
    let refused = sink
        .process_batch(&batch(nullable(), vec![keys, times()]))
        .await
        .unwrap_err();
    let (blame, retry, text) = told(&refused);
    assert_eq!((blame, retry), (Blame::User, Retry::Never));
    assert!(text.contains("key"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn t19_types_that_no_ddl_can_declare_come_by_inference() {
    let more = [
        Field::new("day", DataType::Date32, true),
        Field::new("note", DataType::Utf8View, true),
    ];
    let engine = Engine::with_table(Controller::Controller, "inferred", &columns(&more));
    let days: ArrayRef = Arc::new(Date32Array::from(vec![20_000, 20_001]));
    let notes: ArrayRef = Arc::new(StringViewArray::from(vec!["cast as varchar", "too"]));
    let batch = batch(edge(&more), vec![days, notes, times()]);
    let seen = written(&engine, engine.sink(Declared::default()), "inferred", &batch).await;
    assert_eq!(
        seen.column(2).as_primitive::<Date32Type>().values(),
        &[20_000, 20_001]
    );
    assert_eq!(seen.column(3).as_string::<i32>().value(0), "cast as varchar");
}
