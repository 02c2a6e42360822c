//! Dead letters with `write.mode = 'at_least_once'`: through the default stream of their own table.

use super::*;

fn world(format: &str) -> World {
    let options = [("write.mode", "at_least_once"), ("write.format", format)];
    World::of_parcels(&[LETTERS, &options].concat())
}

#[tokio::test(start_paused = true)]
async fn bad_rows_are_dead_letters_before_the_barrier_is_reported() {
    for format in FORMATS {
        let world = world(format);
        let mut sink = world.start_parcels(None).await;
        let parcels = [Good(0), Long(1), Lost(2), Good(3), Dear(4), Lost(5)];
        sink.process_batch(batch(&parcels)).await.unwrap();
        sink.process_batch(batch(&[Good(6)])).await.unwrap();
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(world.delivered(), [0, 3, 6], "{format}");
        let expected = [Long(1), Dear(4), Lost(2), Lost(5)];
        assert_eq!(
            world.letters(),
            expected.map(|parcel| letter(parcel, 1)),
            "{format}"
        );
        assert_eq!(
            (taken.rows, taken.dead_letters),
            (7, 4),
            "dead letters are rows of the checkpoint too"
        );
        assert_eq!(commit(1, &taken, &mut sink).await, 7);

        sink.process_batch(batch(&[Lost(7), Good(8)])).await.unwrap();
        sink.on_close(CloseReason::EndOfData).await.unwrap();
        assert_eq!(world.delivered(), [0, 3, 6, 8], "{format}");
        assert_eq!(world.letters()[4..], [letter(Lost(7), 2)], "{format}");
        assert_eq!(world.handle.streams_created(), 0);
        assert_eq!(world.calls(Rpc::FlushRows), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_answer_was_lost_is_there_twice() {
    let world = world("arrow");
    world.fault(
        r#"{"rpc": "AppendRows", "table": "refused", "occurrence": {"nth": 1}, "action": {"kind": "lose_answer"}}"#,
    );
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1), Good(2)]))
        .await
        .unwrap();
    let taken = checkpoint(1, &mut sink).await;
    assert_eq!(world.delivered(), [0, 2]);
    assert_eq!(world.letters(), [letter(Lost(1), 1), letter(Lost(1), 1)]);
    assert_eq!((taken.rows, commit(1, &taken, &mut sink).await), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn requests_behind_a_refused_one_are_stored_once() {
    for format in FORMATS {
        let world = world(format);
        world.fault(r#"{"rpc": "AppendRows", "action": {"kind": "delay", "ms": 5000}}"#);
        let mut sink = world.start_parcels(None).await;
        // The first of a connection goes alone.
        sink.process_batch(batch(&[Good(0)])).await.unwrap();
        sleep(Duration::from_secs(6)).await;
        for request in [&[Good(1), Lost(2)][..], &[Good(3)], &[Lost(4)], &[Good(5)]] {
            sink.process_batch(batch(request)).await.unwrap();
            // Past the linger: a request of its own.
            sleep(Duration::from_millis(250)).await;
        }
        let taken = checkpoint(1, &mut sink).await;
        assert_eq!(taken.rows, 6);
        let mut delivered = world.delivered();
        delivered.sort_unstable();
        assert_eq!(delivered, [0, 1, 3, 5], "{format}");
        assert_eq!(
            world.letters(),
            [Lost(2), Lost(4)].map(|parcel| letter(parcel, 1)),
            "{format}"
        );
    }
}
