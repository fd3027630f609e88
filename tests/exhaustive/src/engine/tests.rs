use super::{Limits, explore};
use crate::{Key, World};

/// Two counters up to a bound, and a state in which something is wrong.
struct Counters {
    bound: u8,
    wrong: Option<[u8; 2]>,
    copies: bool,
}

struct State([u8; 2]);

impl World for Counters {
    type State = State;
    type Step = usize;

    fn start(&self) -> State {
        State([0; 2])
    }

    fn steps(&self, state: &State) -> Vec<usize> {
        // The third step changes nothing.
        (0..3).filter(|at| *at == 2 || state.0[*at] < self.bound).collect()
    }

    fn take(&self, state: &mut State, step: &usize) -> Result<(), String> {
        if let Some(counter) = state.0.get_mut(*step) {
            *counter += 1;
        }
        match self.wrong {
            Some(wrong) if state.0 == wrong => Err("it is wrong".into()),
            _ => Ok(()),
        }
    }

    fn key(&self, state: &State) -> u128 {
        Key::new().with(state.0).get()
    }

    fn test(&self, path: &[usize]) -> String {
        format!("take({path:?});")
    }

    fn copy(&self, state: &State) -> Option<State> {
        self.copies.then_some(State(state.0))
    }
}

const ALL: Limits = Limits { depth: u32::MAX, time: None };

#[test]
fn every_state_is_visited_once_and_every_step_taken() {
    for copies in [false, true] {
        let world = Counters { bound: 9, wrong: None, copies };
        let figures = explore(&world, ALL).expect("nothing is wrong");
        assert_eq!((figures.states, figures.depth, figures.cut), (100, 18, 0));
        assert_eq!(figures.transitions, 100 + 2 * 9 * 10);
        assert!(figures.to_string().contains("whole"));
    }
}

#[test]
fn a_world_that_is_cut_says_where() {
    let world = Counters { bound: 9, wrong: None, copies: false };
    let figures = explore(&world, Limits { depth: 3, time: None }).expect("nothing is wrong");
    assert_eq!((figures.states, figures.depth, figures.cut), (10, 3, 4));
    assert!(figures.to_string().contains("cut: 4 states at depth 3"), "{figures}");
    let no_time = Limits { time: Some(core::time::Duration::ZERO), ..ALL };
    assert_eq!(explore(&world, no_time).expect("nothing is wrong").cut, 1);
}

#[test]
fn a_failure_comes_with_a_shortest_path() {
    for copies in [false, true] {
        let world = Counters { bound: 9, wrong: Some([2, 1]), copies };
        let broken = explore(&world, ALL).expect_err("one state is wrong");
        let counts = [0, 1].map(|one| broken.path.iter().filter(|step| **step == one).count());
        assert_eq!(counts, [2, 1], "{broken:?}");
        assert!(broken.test.starts_with("take(["), "{broken:?}");
    }
}

#[test]
fn a_panic_is_a_failure() {
    struct Panics;
    impl World for Panics {
        type State = ();
        type Step = ();
        fn start(&self) {}
        fn steps(&self, (): &()) -> Vec<()> {
            vec![()]
        }
        fn take(&self, (): &mut (), (): &()) -> Result<(), String> {
            panic!("on purpose")
        }
        fn key(&self, (): &()) -> u128 {
            0
        }
        fn test(&self, _: &[()]) -> String {
            String::new()
        }
    }
    let broken = explore(&Panics, ALL).expect_err("it panics");
    assert_eq!(broken.why, "the code panicked: on purpose");
}
