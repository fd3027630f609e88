//! Small worlds of the strategies, explored whole: every size, alignment, class, user and place at every moment.
#![expect(clippy::print_stdout, reason = "the figures are what a run is for")]
mod pages;
mod plain;
mod tlsf;

use omniheap_exhaustive::{Limits, World, check};

/// Explores a world as deep as it goes, at most `depth` steps.
fn explore(name: &str, world: &impl World, depth: u32) {
    let figures = check(name, world, Limits::depth(depth));
    let seconds = figures.time.as_secs_f64();
    println!(
        "{name}: {:.1} million transitions a second",
        figures.transitions as f64 / seconds / 1e6
    );
}

/// Takes the steps of a path one after another. A path that a world printed is kept this way.
fn replay<W: World>(world: &W, path: &[W::Step]) {
    let mut state = world.start();
    for step in path {
        assert_eq!(world.take(&mut state, step), Ok(()), "{step:?} of {path:?}");
    }
}
