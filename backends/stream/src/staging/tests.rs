use super::*;
use core::sync::atomic::{AtomicUsize, Ordering};
use omniheap_seam::ErrorKind;

#[test]
fn workers_divide_all_pieces_once() {
    for workers in [1, 2, 8] {
        let pieces = Mutex::new(0..1000usize);
        let sum = AtomicUsize::new(0);
        let result = together(workers, || {
            while let Some(piece) = next(&pieces) {
                sum.fetch_add(piece, Ordering::Relaxed);
            }
            Ok(())
        });
        assert_eq!(result, Ok(()));
        assert_eq!(sum.into_inner(), 499_500);
    }
}

#[test]
fn one_failing_worker_fails_the_transfer() {
    let turn = AtomicUsize::new(0);
    let result = together(4, || {
        if turn.fetch_add(1, Ordering::Relaxed) == 2 {
            return Err(ErrorKind::DeviceLost.into());
        }
        Ok(())
    });
    assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::DeviceLost));
}
