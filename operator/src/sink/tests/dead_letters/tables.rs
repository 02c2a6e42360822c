//! The table of the dead letters: made, or there already.

use super::*;

/// The tables of a world where those of the parcels are there, and none of dead letters.
async fn without_letters_table(create: &str) -> World {
    let options = [LETTERS, &[("table.create", create)]].concat();
    let world = if create == "never" {
        World::with(&options)
    } else {
        World::with_rest(&options).await
    };
    world.handle.create_table(&parcels(), parcel_table()).unwrap();
    world
}

async fn look(world: &World) -> Result<TableLooks, SinkError> {
    BigQuerySink::check(&world.options, &parcel_columns(), &world.environment).await
}

#[tokio::test(start_paused = true)]
async fn a_missing_dead_letter_table_is_created_if_tables_are() {
    let world = without_letters_table("if_missing").await;
    let looks = look(&world).await.unwrap();
    let expected = TableLooks {
        table: TableLook::Fits,
        dead_letters: Some(TableLook::WillBeCreated),
    };
    assert_eq!(looks, expected);
    assert!(world.handle.rows(&refused()).is_err());
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1), Lost(2)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 2);
    assert_eq!(
        world.letters(),
        [Long(1), Lost(2)].map(|parcel| letter(parcel, 1))
    );
    let schema = world
        .handle
        .shared()
        .with(|machine| machine.catalog().table(&refused()).unwrap().schema.clone());
    let columns = schema.columns.iter();
    let columns: Vec<_> = columns
        .map(|column| format!("{} {:?} {:?}", column.name, column.kind, column.mode))
        .collect();
    assert_eq!(
        columns,
        [
            "row Json Required",
            "reason String { max_length: None } Required",
            "column String { max_length: None } Nullable",
            "epoch Int64 Required",
            "subtask Int64 Required",
            "rejected_at Timestamp Required",
            "table String { max_length: None } Required",
        ]
    );
    let looks = look(&world).await.unwrap();
    assert_eq!(looks.dead_letters, Some(TableLook::Fits));

    let world = without_letters_table("never").await;
    let begin = Instant::now();
    let mut sink = world.parcel_sink(0, 1);
    let text = sink.on_start(None).await.unwrap_err().to_string();
    assert!(
        text.starts_with(
            "option 'dead_letter.table', whose columns docs/dead_letters.md lists: table \
             projects/shop/datasets/sales/tables/refused does not exist; create it, or let the sink do so"
        ),
        "{text}"
    );
    assert_eq!(look(&world).await.unwrap_err().to_string(), text);
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_table_may_have_more_columns_and_not_others() {
    let own = Schema::from_wire(&table_schema_for(&crate::sink::dead_letters::columns()).unwrap()).unwrap();
    let more = |column: Column| {
        let mut schema = own.clone();
        schema.columns.insert(0, column);
        schema
    };
    let world = without_letters_table("never").await;
    let schema = more(Column::new("mended", Kind::Bool, Mode::Nullable));
    world.handle.create_table(&refused(), schema).unwrap();
    assert_eq!(look(&world).await.unwrap().dead_letters, Some(TableLook::Fits));
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 1);
    let rows = world.handle.rows(&refused()).unwrap();
    assert!(rows.column(0).is_null(0));
    assert_eq!(rows.column(1).as_string::<i32>().value(0), letter(Long(1), 1).0);

    let mut lacks = own.clone();
    lacks.columns.remove(4);
    let mut other = own.clone();
    other.columns[3].kind = Kind::Bool;
    let cases = [
        (
            lacks,
            "column `subtask`: the pipeline writes BIGINT, the table has no such column",
        ),
        (
            other,
            "column `epoch`: the pipeline writes BIGINT, the table has BOOL",
        ),
        (
            more(Column::new("mended", Kind::Bool, Mode::Required)),
            "column `mended`: the table requires BOOL NOT NULL without default",
        ),
    ];
    for (schema, expected) in cases {
        let world = without_letters_table("never").await;
        world.handle.create_table(&refused(), schema).unwrap();
        let text = world
            .parcel_sink(0, 1)
            .on_start(None)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with("option 'dead_letter.table', whose columns docs/dead_letters.md lists: "),
            "{text}"
        );
        assert!(text.contains(expected), "{text}");
        assert_eq!(look(&world).await.unwrap_err().to_string(), text);
    }
}
