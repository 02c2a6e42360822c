//! Every world that can be reached, breadth first, so that the way to a violation is a shortest one.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::part::Print;
use crate::scope::Scope;
use crate::steps::Step;
use crate::world::{Case, World};

/// What an exploration came to.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) transitions: usize,
    /// States in which the job is done.
    pub(crate) done: usize,
    /// Steps of the longest shortest way.
    pub(crate) depth: usize,
    pub(crate) met: BTreeSet<Case>,
    /// States after which nothing can happen any more.
    pub(crate) ends: BTreeSet<Print>,
    pub(crate) violation: Option<Violation>,
}

/// What is broken, and a shortest way to it.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) way: Vec<String>,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            transitions,
            done,
            depth,
            ..
        } = self;
        write!(
            f,
            "{states} states ({done} with the job done), {transitions} transitions, up to {depth} steps"
        )
    }
}

impl Violation {
    /// Steps of the way; what is told and done in between is indented.
    #[cfg(feature = "mutants")]
    pub(crate) fn steps(&self) -> usize {
        self.way.iter().filter(|line| !line.starts_with(' ')).count()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\nthe shortest way there:\n{}",
            self.what,
            self.way.join("\n")
        )
    }
}

/// By which state a state was first reached, and by which of its steps.
type Visited = BTreeMap<Print, (Print, u16)>;

/// Explores all of it.
///
/// # Panics
/// If there are more than `most` states: a scope is never cut short.
pub(crate) fn explore(scope: &Scope, most: usize) -> Explored {
    let first = World::new(scope);
    let mut visited = Visited::default();
    visited.insert(first.print(), (first.print(), 0));
    let mut explored = Explored {
        states: 1,
        transitions: 0,
        done: 0,
        depth: 0,
        met: BTreeSet::new(),
        ends: BTreeSet::new(),
        violation: None,
    };
    let mut level = vec![first];
    'levels: while !level.is_empty() {
        let mut next_level = Vec::new();
        for world in level {
            let steps = world.steps(scope);
            if steps.is_empty() && !world.stopped && !world.excused {
                explored.ends.insert(world.print());
            }
            explored.done += usize::from(world.is_done());
            let mut goes_on =
                world.is_done() || world.stopped || world.excused || world.reduced(scope).is_some();
            for (index, step) in steps.iter().enumerate() {
                explored.transitions += 1;
                let mut next = match taken(scope, &world, step) {
                    Ok(next) => next,
                    Err(what) => {
                        let way = way(scope, &visited, world.print(), Some(step));
                        explored.violation = Some(Violation { what, way });
                        break 'levels;
                    }
                };
                explored.met.append(&mut next.met);
                let print = next.print();
                goes_on |= print != world.print() && world.goes_on(step);
                if let Entry::Vacant(free) = visited.entry(print) {
                    free.insert((world.print(), u16::try_from(index).unwrap()));
                    next_level.push(next);
                }
            }
            if !goes_on {
                explored.violation = Some(Violation {
                    what: "invariant 13: the job is stuck".into(),
                    way: way(scope, &visited, world.print(), None),
                });
                break 'levels;
            }
            explored.states = visited.len();
            assert!(
                explored.states <= most,
                "{scope}: the bound of {most} states is reached at depth {}",
                explored.depth
            );
        }
        explored.depth += usize::from(!next_level.is_empty());
        level = next_level;
    }
    explored
}

/// The world after a step, or what the step broke.
fn taken(scope: &Scope, world: &World, step: &Step) -> Result<World, String> {
    quietly(|| {
        let mut next = world.clone();
        next.take(scope, step);
        next
    })
}

/// The way to a state and over a step, with all that is told and done on it.
fn way(scope: &Scope, visited: &Visited, to: Print, last: Option<&Step>) -> Vec<String> {
    let mut indexes = Vec::new();
    let mut at = to;
    while let Some((from, index)) = visited.get(&at).filter(|(from, _)| *from != at) {
        indexes.push(usize::from(*index));
        at = *from;
    }
    let mut world = World::new(scope);
    world.log = Some(Vec::new());
    for index in indexes.into_iter().rev() {
        let step = world.steps(scope)[index].clone();
        world.take(scope, &step);
    }
    let mut log = world.log.clone().unwrap_or_default();
    if let Some(step) = last {
        // It panics; what it said before is gone with its world.
        log.push(format!("{step:?}"));
    }
    log
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs something that may panic and returns what the panic says, without printing it.
fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.map_err(|panic| text(&*panic))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a text".into())
}
