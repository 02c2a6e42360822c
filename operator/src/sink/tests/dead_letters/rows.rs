//! Which rows of a request become dead letters, and how the others go on.

use super::*;

#[tokio::test(start_paused = true)]
async fn rows_behind_a_refused_one_move_up_while_later_requests_are_in_flight() {
    // Invariant 4; reports.md 38.
    for format in FORMATS {
        for bad in [
            [Lost(100), Good(101), Good(102)],
            [Good(100), Lost(101), Good(102)],
            [Good(100), Good(101), Lost(102)],
        ] {
            let world = World::with_letters(format);
            world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 5000}}"#);
            let mut sink = world.start_parcels(None).await;
            // The first of a connection goes alone.
            sink.process_batch(batch(&[Good(0)])).await.unwrap();
            sleep(Duration::from_secs(6)).await;
            let requests: [&[Parcel]; 4] = [&bad, &[Good(103), Lost(104)], &[Lost(105)], &[Good(106)]];
            for request in requests {
                sink.process_batch(batch(request)).await.unwrap();
                // Past the linger: a request of its own.
                sleep(Duration::from_millis(250)).await;
            }
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!(commit(1, &taken, &mut sink).await, 8);
            let lost: Vec<Parcel> = bad
                .into_iter()
                .filter(|parcel| matches!(parcel, Lost(_)))
                .collect();
            let good = bad.iter().filter_map(|parcel| match parcel {
                Good(id) => Some(*id),
                _ => None,
            });
            let good: Vec<i64> = [0].into_iter().chain(good).chain([103, 106]).collect();
            assert_eq!(world.delivered(), good, "{format}");
            let letters = lost.into_iter().chain([Lost(104), Lost(105)]);
            assert_eq!(
                world.letters(),
                letters.map(|parcel| letter(parcel, 1)).collect::<Vec<_>>()
            );
            assert_eq!(world.handle.streams_created(), 2, "no stream is left for it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_good_row_is_not_sent_again() {
    let world = World::with_letters("arrow");
    world.fault(r#"{"rpc": "AppendRows", "table": "parcels", "action": {"kind": "delay", "ms": 0}}"#);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Lost(1), Lost(2)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (2, 2));
    assert_eq!(world.counted(), 1);
    assert_eq!(world.delivered(), NOTHING);
    assert_eq!(
        world.letters(),
        [Lost(1), Lost(2)].map(|parcel| letter(parcel, 1))
    );

    // Nor are there streams where every row is refused before it is sent.
    let world = World::with_letters("arrow");
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Long(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (1, 1));
    assert_eq!(world.letters(), [letter(Long(1), 1)]);
    assert_eq!(world.handle.streams_created(), 1, "that of the dead letters");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_bad_rows_that_is_cut_short_costs_another_round_and_no_row() {
    // write-api.md 3.5: the list may be truncated. BigQuery names one of three, then the others.
    for mode in ["exactly_once", "at_least_once"] {
        for format in FORMATS {
            let options = [("write.format", format), ("write.mode", mode)];
            let world = World::of_parcels(&[LETTERS, &options].concat());
            world.fault(
                r#"{"rpc": "AppendRows", "table": "parcels", "occurrence": {"nth": 1},
                    "action": {"kind": "row_errors", "rows": [2], "message": "Invalid geography on field place."}}"#,
            );
            let mut sink = world.start_parcels(None).await;
            let parcels = [Good(0), Lost(1), Lost(2), Good(3), Lost(4), Good(5)];
            sink.process_batch(batch(&parcels)).await.unwrap();
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!((taken.rows, taken.dead_letters), (6, 3), "{mode} {format}");
            assert_eq!(commit(1, &taken, &mut sink).await, 6);
            assert_eq!(world.delivered(), [0, 3, 5], "{mode} {format}");
            let expected = [Lost(2), Lost(1), Lost(4)];
            assert_eq!(
                world.letters(),
                expected.map(|parcel| letter(parcel, 1)),
                "{mode} {format}"
            );
            assert_eq!(world.counted(), 3, "refused, refused, taken");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_the_table_or_the_wire_make_no_dead_letters() {
    // reports.md 92: a good row must not be taken for a bad one.
    for (code, in_band) in [
        ("NOT_FOUND", false),
        ("PERMISSION_DENIED", false),
        ("RESOURCE_EXHAUSTED", true),
        ("INTERNAL", true),
        ("ABORTED", false),
        ("ALREADY_EXISTS", true),
    ] {
        for table in ["parcels", "refused"] {
            let world = World::with_letters("arrow");
            world.fault(&format!(
                r#"{{"rpc": "AppendRows", "table": "{table}", "occurrence": {{"nth": 1}},
                    "action": {{"kind": "refuse", "code": "{code}", "message": "not now", "in_band": {in_band}}}}}"#
            ));
            let mut sink = world.start_parcels(None).await;
            sink.process_batch(batch(&[Good(0), Lost(1), Good(2)]))
                .await
                .unwrap();
            let taken = checkpoint(1, &mut sink).await;
            assert_eq!(commit(1, &taken, &mut sink).await, 3);
            assert_eq!(world.delivered(), [0, 2], "{code} {table}");
            assert_eq!(world.letters(), [letter(Lost(1), 1)], "{code} {table}");
            assert_eq!(world.handle.faults()[0].fired, 1, "{code} {table}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_element_that_is_null_is_a_dead_letter_and_a_null_array_is_none() {
    // reports.md 69.
    let world = World::with_letters("arrow");
    let table = TableRef::new("shop", "sales", "lists");
    let schema = Schema {
        columns: vec![Column::new("numbers", Kind::Int64, Mode::Repeated)],
    };
    world.handle.create_table(&table, schema).unwrap();
    let lists = arrow_array::ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(2)]),
    ]);
    let rows =
        RecordBatch::try_from_iter_with_nullable([("numbers", Arc::new(lists) as ArrayRef, true)]).unwrap();
    let mut sink = world.sink(0, 1);
    sink.options = Arc::new(options(&[&LETTERS[1..], &[("table", "lists")]].concat()));
    sink.columns = rows.schema();
    sink.on_start(None).await.unwrap();
    sink.process_batch(rows).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(commit(1, &taken, &mut sink).await, 3);
    let rows = world.handle.rows(&table).unwrap();
    let lists: Vec<Vec<i64>> = (0..rows.num_rows())
        .map(|row| {
            rows.column(0)
                .as_list::<i32>()
                .value(row)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(lists, [vec![], vec![2]]);
    let letters = world.handle.rows(&refused()).unwrap();
    let text = |column: usize| letters.column(column).as_string::<i32>().value(0).to_owned();
    assert_eq!(
        (text(0), text(1), text(2)),
        (
            r#"{"numbers":[1,null]}"#.to_owned(),
            "NULL as an element of a REPEATED column".to_owned(),
            "numbers".to_owned()
        )
    );
}
