//! The same table when each kind of answer is lost once.

use std::time::Duration;

use crate::support::{World, finish, summary};

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_answer_lost_once_changes_nothing() {
    for (rpc, nth) in [("CreateWriteStream", 1), ("AppendRows", 3), ("FlushRows", 2)] {
        for parallelism in ["1", "3"] {
            let rule = format!(
                r#"{{"rpc": "{rpc}", "occurrence": {{"nth": {nth}}}, "action": {{"kind": "lose_answer"}}}}"#
            );
            let world = World::new(3_000, &format!(r#"{{"rules": [{rule}]}}"#)).await;
            let child = world
                .run(&["--parallelism", parallelism, "--source-rate", "6000"])
                .spawn()
                .unwrap();
            let summary = summary(&finish(child, Duration::from_secs(60)).await);
            assert_eq!(
                (&summary["rows_read"], &summary["rows_committed"]),
                (&3_000.into(), &3_000.into())
            );
            assert_eq!(summary["restarts"], 0, "a lost answer needs no restart");
            let fired: Vec<u64> = world
                .emulator
                .handle()
                .faults()
                .iter()
                .map(|report| report.fired)
                .collect();
            assert_eq!(fired, [1], "{rpc}: the answer was lost");
            world.assert_whole().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_that_pass_change_nothing() {
    let refuse = |rpc: &str, code: &str, extra: &str| {
        format!(
            r#"{{"rpc": "{rpc}", "occurrence": {{"from": 2, "every": 3, "times": 3}}, "action": {{"kind": "refuse", "code": "{code}"{extra}}}}}"#
        )
    };
    let rules = [
        refuse("AppendRows", "INTERNAL", r#", "in_band": true"#),
        refuse("AppendRows", "UNAVAILABLE", ""),
        refuse("FlushRows", "UNAVAILABLE", ""),
        refuse("AppendRowsOpen", "ABORTED", ""),
    ];
    let world = World::new(3_000, &format!(r#"{{"rules": [{}]}}"#, rules.join(","))).await;
    let child = world
        .run(&["--parallelism", "2", "--source-rate", "3000"])
        .spawn()
        .unwrap();
    let summary = summary(&finish(child, Duration::from_secs(60)).await);
    assert_eq!(summary["rows_committed"], 3_000);
    let fired: Vec<u64> = world
        .emulator
        .handle()
        .faults()
        .iter()
        .map(|report| report.fired)
        .collect();
    assert!(fired.iter().all(|count| *count >= 1), "{fired:?}");
    world.assert_whole().await;
}
