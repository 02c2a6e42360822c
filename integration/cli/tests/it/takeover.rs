//! Two hosts on one state directory: one publishes each epoch, the other says why it does not.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::{World, finish, signal, summary};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_on_the_same_state_gives_way() {
    let world = World::new(8_000, "{}").await;
    let first = world.run(&["--source-rate", "2000"]).spawn().unwrap();
    checkpoints_begin(&world).await;
    let second = finish(world.run(&[]).spawn().unwrap(), Duration::from_secs(30)).await;
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("{}", first.id())),
        "it names who holds the state: {stderr}"
    );
    summary(&finish(first, Duration::from_secs(60)).await);
    world.assert_whole().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_run_that_is_woken_after_a_takeover_publishes_nothing_more() {
    let world = World::new(6_000, "{}").await;
    let first = world.run(&["--source-rate", "3000"]).spawn().unwrap();
    checkpoints_begin(&world).await;
    signal(&first, "STOP");
    let second = world
        .run(&["--take-over", "--source-rate", "3000"])
        .spawn()
        .unwrap();
    let before = world.visible_ids().len();
    let limit = Instant::now() + Duration::from_secs(30);
    while world.visible_ids().len() == before {
        assert!(Instant::now() < limit, "the second run does not publish");
        sleep(Duration::from_millis(5)).await;
    }
    signal(&first, "CONT");
    let first = finish(first, Duration::from_secs(30)).await;
    let stderr = String::from_utf8_lossy(&first.stderr);
    assert_eq!(first.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("another host"), "it says why it stops: {stderr}");
    summary(&finish(second, Duration::from_secs(60)).await);
    world.assert_whole().await;
}

async fn checkpoints_begin(world: &World) {
    let limit = Instant::now() + Duration::from_secs(30);
    while world.visible_ids().is_empty() {
        assert!(Instant::now() < limit, "the run does not begin");
        sleep(Duration::from_millis(5)).await;
    }
}
