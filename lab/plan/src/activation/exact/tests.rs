use super::super::choose::{cheapest_of_all, choose, random_rows};
use super::*;
use crate::rng::Rng;

#[test]
fn few_activations_get_the_cheapest_choices_of_all() {
    let (mut rng, never, mut improved) = (Rng::new(9), Stop::new(&|| false), 0);
    for _ in 0..150 {
        let rows = random_rows(&mut rng, 8);
        let (Some(found), relaxed) = choose(&rows, None, &never) else { continue };
        let before = found.cost;
        let (best, is_complete) = improve(&rows, &relaxed, found, &never);
        assert!(is_complete);
        assert_eq!(Some(best.cost), cheapest_of_all(&rows));
        assert!(rows.slack(&best.picked).iter().all(|&slack| slack >= 0));
        improved += u32::from(best.cost < before);
    }
    assert!(improved > 0, "there was something to find");
}
