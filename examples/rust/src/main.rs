//! The best labels of a context, over weights in the program's memory: cargo run, with L2S=FOLDER of libl2s.so.
use std::ffi::{c_char, c_void, CStr};
use std::marker::PhantomData;
use std::ptr;

#[repr(C)]
struct Matrix {
    data: *const c_void,
    rows: usize,
    dim: usize,
    stride: isize, // 0: rows follow each other
    kind: i32,     // 0: float32
}

#[link(name = "l2s")]
extern "C" {
    fn l2s_abi() -> u32;
    fn l2s_error() -> *const c_char;
    fn l2s_layer_new(weights: *const Matrix, bias: *const f32, scale: f64, soft_cap: f64, layer: *mut *mut c_void) -> i32;
    fn l2s_layer_close(layer: *mut c_void) -> i32;
    fn l2s_pool_new(layer: *mut c_void, index: *mut c_void, options: *const c_void, pool: *mut *mut c_void) -> i32;
    fn l2s_pool_close(pool: *mut c_void) -> i32;
    fn l2s_topk(pool: *mut c_void, context: *const f32, k: usize, ids: *mut i64, logits: *mut f64) -> i32;
}

fn check(status: i32) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(l2s_error()) }.to_string_lossy().into_owned()),
    }
}

/// Exact searches over weights, which the lifetime keeps in place: the library does not copy them.
struct Search<'a> {
    layer: *mut c_void,
    pool: *mut c_void,
    dim: usize,
    weights: PhantomData<&'a [f32]>,
}

// Any number of threads may call the library with the same handles.
unsafe impl Send for Search<'_> {}
unsafe impl Sync for Search<'_> {}

impl<'a> Search<'a> {
    fn new(weights: &'a [f32], dim: usize) -> Result<Self, String> {
        assert!(unsafe { l2s_abi() } == 1, "found another libl2s");
        let mut s = Search { layer: ptr::null_mut(), pool: ptr::null_mut(), dim, weights: PhantomData };
        let w = Matrix { data: weights.as_ptr().cast(), rows: weights.len() / dim, dim, stride: 0, kind: 0 };
        check(unsafe { l2s_layer_new(&w, ptr::null(), 1.0, 0.0, &mut s.layer) })?;
        check(unsafe { l2s_pool_new(s.layer, ptr::null_mut(), ptr::null(), &mut s.pool) })?;
        Ok(s)
    }

    fn topk(&self, context: &[f32], k: usize) -> Result<Vec<(i64, f64)>, String> {
        assert_eq!(context.len(), self.dim);
        let (mut ids, mut logits) = (vec![0; k], vec![0.0; k]);
        check(unsafe { l2s_topk(self.pool, context.as_ptr(), k, ids.as_mut_ptr(), logits.as_mut_ptr()) })?;
        Ok(ids.into_iter().zip(logits).collect())
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        unsafe { (l2s_pool_close(self.pool), l2s_layer_close(self.layer)) }; // handles that were not made are refused
    }
}

fn main() -> Result<(), String> {
    let (labels, dim) = (1000, 8);
    let weights: Vec<f32> = (0..labels * dim).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 504.0).collect();
    let search = Search::new(&weights, dim)?;
    let context = [1.0, -2.0, 0.5, 3.0, 0.0, 1.0, -1.0, 2.0];
    let logit = |s: usize| (0..dim).map(|j| weights[s * dim + j] as f64 * context[j] as f64).sum::<f64>();
    let best = (0..labels).max_by(|&a, &b| logit(a).total_cmp(&logit(b)).then(b.cmp(&a))).unwrap();
    let found = std::thread::scope(|t| t.spawn(|| search.topk(&context, 3)).join().unwrap())?;
    for (id, x) in &found {
        println!("{id} {x}");
    }
    assert!(found[0].0 == best as i64 && (found[0].1 - logit(best)).abs() < 1e-9, "expected label {best}");
    let too_many = search.topk(&context, labels + 1).unwrap_err();
    assert!(too_many.contains("found 1001, expected at most 1000"), "{too_many}");
    Ok(())
}
