//! Where a run goes on, and what a stored position notices.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_json() {
    let write = |world: &World| {
        world.write(
            "1",
            "{\"id\": 1}\n{\"id\": 2}\n\n{\"id\": 3}\n{\"id\": 4}\n{\"id\": 5}\n",
        );
        world.write("2", "");
        world.write("3", "{\"id\": 6}");
        world.write("4", "\n");
        world.write("5", "{\"id\": 7}\n{\"id\": 8}");
    };
    let all: Vec<_> = (1..=8).map(|id| id.to_string()).collect();
    // 1 2, 3 4, 5, 6, 7 8.
    for batches in 0..=5 {
        let mut world = World::json().with_batches(2.0);
        write(&world);
        let mut read = world.read_batches(batches).await;
        read.extend(world.read().await.unwrap());
        assert_eq!(read, all, "behind batch {batches}");
        assert_eq!(world.position(), "all 5 files");
        assert_eq!(world.read().await.unwrap(), [""; 0]);
    }
    let mut world = World::json().with_batches(2.0);
    write(&world);
    assert_eq!(world.read_batches(0).await, [""; 0]);
    assert_eq!(world.position(), "0 of 5 files, then 1: its begin");
    world.read_batches(2).await;
    assert_eq!(world.position(), "0 of 5 files, then 1: byte 41, after line 5");
    world.read_batches(1).await;
    assert_eq!(world.position(), "0 of 5 files, then 1: byte 51, after line 6");
    world.read_batches(1).await;
    assert_eq!(world.position(), "2 of 5 files, then 3: byte 9, after line 1");
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_parquet() {
    let write = |world: &World| {
        world.write_parquet("1", 0..10, 5);
        world.write_parquet("2", 0..0, 5);
        world.write_parquet("3", 10..11, 5);
        world.write_parquet("4", 11..40, 7);
    };
    for rows_of_a_batch in [1.0, 2.0, 3.0, 4.0, 7.0] {
        for batches in 0.. {
            let mut world = World::parquet().with_batches(rows_of_a_batch);
            write(&world);
            let mut read = world.read_batches(batches).await;
            // Another size of batches when it goes on.
            world.rate = Some(100.0);
            let more = world.read().await.unwrap();
            let ended = more.is_empty();
            read.extend(more);
            assert_eq!(read, shown(0..40), "behind batch {batches} of {rows_of_a_batch}");
            if ended {
                break;
            }
        }
    }
    let mut world = World::parquet().with_batches(3.0);
    write(&world);
    world.read_batches(3).await;
    assert_eq!(world.position(), "0 of 4 files, then 1: row group 1, row 3");
    world.read_batches(1).await;
    assert_eq!(world.position(), "0 of 4 files, then 1: row group 1, row 5");
}

#[tokio::test]
async fn files_that_are_done_may_go_and_new_ones_are_not_read() {
    let mut world = World::parquet().with_batches(1.0);
    for (name, ids) in [("b", 0..1), ("d", 1..3), ("f", 3..4)] {
        world.write_parquet(name, ids, 10);
    }
    assert_eq!(world.read_batches(2).await, shown(0..2));
    std::fs::remove_file(world.path("b")).unwrap();
    for name in ["a", "c", "e", "g"] {
        world.write_parquet(name, 90..99, 10);
    }
    assert_eq!(world.read().await.unwrap(), shown(2..4));
}

#[tokio::test]
async fn a_file_that_is_gone_or_changed_is_named_when_the_run_goes_on() {
    let out = "; put the old file back, or start anew with --new-state";
    let begun = || async {
        let mut world = World::parquet().with_batches(1.0);
        world.write_parquet("a", 0..3, 10);
        world.write_parquet("b", 3..6, 10);
        world.write_parquet("c", 6..9, 10);
        world.read_batches(1).await;
        world
    };
    let mut world = begun().await;
    std::fs::remove_file(world.path("b")).unwrap();
    let gone = "is gone since the job listed its files; put it back, or start anew with --new-state";
    assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/b: {gone}"));
    world.write_parquet("b", 3..6, 10);
    std::fs::remove_file(world.path("a")).unwrap();
    assert_eq!(world.read().await.unwrap_err(), format!("FOLDER/in/a: {gone}"));

    let mut world = begun().await;
    let size = std::fs::metadata(world.path("c")).unwrap().len();
    world.write("c", "x");
    let changed = format!("FOLDER/in/c: has 1 bytes, but had {size} when the job listed its files{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);

    let mut world = begun().await;
    world.write_parquet("a", 0..4, 10);
    let changed = format!("FOLDER/in/a: has changed since it was read in part{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);

    // Of a file of which nothing was read, whatever it is now.
    let mut world = World::parquet();
    world.write("a", "x");
    let source = world.open().await.unwrap();
    world.store(source.as_ref());
    world.write_parquet("a", 0..4, 10);
    assert_eq!(world.read().await.unwrap(), shown(0..4));

    let mut world = World::json().with_batches(1.0);
    world.write("a", "{\"id\": 1}\n{\"id\": x}\n");
    world.read_batches(1).await;
    let bad = "FOLDER/in/a, line 2: it is not JSON: expected value at column 8; mend the line, or set bad_data = 'drop' to leave such \
               lines out";
    assert_eq!(world.read().await.unwrap_err(), bad);
    world.write("a", "{\"id\": 7}\n{\"id\": 2}\n");
    let changed = format!("FOLDER/in/a: has changed before byte 10, up to which it was read{out}");
    assert_eq!(world.read().await.unwrap_err(), changed);
    world.write("a", "{\"id\": 1}\n{\"id\": 22}\n");
    assert_eq!(world.read().await.unwrap(), ["22"]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_small_files_are_read_in_order_and_their_position_is_small() {
    let mut world = World::json();
    for id in 0..1000 {
        world.write(&format!("part-{id:05}.json"), format!("{{\"id\": {id}}}\n"));
    }
    assert_eq!(world.read_batches(0).await, [""; 0]);
    assert!(
        world.stored[0].bytes.len() < 10_000,
        "{}",
        world.stored[0].bytes.len()
    );
    let mut read = world.read_batches(700).await;
    assert!(
        world.stored[0].bytes.len() < 3000,
        "{}",
        world.stored[0].bytes.len()
    );
    read.extend(world.read().await.unwrap());
    assert_eq!(read, (0..1000).map(|id| id.to_string()).collect::<Vec<_>>());
    assert!(world.stored[0].bytes.len() < 30);
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_every_batch_of_compressed_json() {
    let text: String = (0..9).map(|id| format!("{{\"id\": {id}}}\n")).collect();
    let all: Vec<_> = (0..9).map(|id| id.to_string()).collect();
    for compression in [Compression::Gzip, Compression::Zstd] {
        for batches in 0..=5 {
            let mut world = World::json().with_batches(2.0);
            world.config.compression = compression;
            world.write("a", packed(compression, &text).await);
            let mut read = world.read_batches(batches).await;
            read.extend(world.read().await.unwrap());
            assert_eq!(read, all, "behind batch {batches}, {compression:?}");
        }
    }
}

#[test]
fn positions_of_version_3_are_read() {
    let left = ["part-1.json", "part-2.json", "q"].map(|name| ListedFile {
        name: name.to_owned(),
        size: 100,
    });
    let within = Within::Rows {
        footer_crc: 0x0102_0304,
        row_group: 2,
        row: 1000,
    };
    let position = FilesPosition::new(7, &left.clone().into(), within);
    let hex: String = position
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "414251530107030027000000b686aa8c0703000b706172742d312e6a736f6e640506322e6a736f6e640001716402fc0403020102fbe803"
    );
    assert_eq!(FilesPosition::decode(&position.encode()), Ok(position.clone()));
    assert_eq!(position.files().unwrap(), left);
    let stored = SourcePosition {
        name: "t".into(),
        bytes: position.encode(),
    };
    let shown = "7 of 10 files, then part-1.json: row group 2, row 1000";
    assert_eq!(describe_position(&stored), ("t", shown.to_owned()));
}

#[test]
fn names_that_differ_within_a_character_are_put_together_again() {
    let names = ["é1", "è2", "è2", "è", ""];
    let left: VecDeque<_> = names
        .iter()
        .map(|name| ListedFile {
            name: (*name).to_owned(),
            size: 1,
        })
        .collect();
    let position = FilesPosition::new(0, &left, Within::Start);
    assert_eq!(VecDeque::from(position.files().unwrap()), left);
}
