def reduce_at_9(m, c, b):
    masked = canvas_get(m, c, field='masked')  # fast_dllm.dec:9
    item = gather(m, masked, b)
    any_ = reduce_any(m, item)
    return any_


def open_at_12(m, c, b):
    masked = canvas_get(m, c, field='masked')  # fast_dllm.dec:12
    item = gather(m, masked, b)
    open_ = compact(m, b, item)
    return open_


def p_raw_at_10(m, p_model, b, key, open_):
    p = gather(m, p_model, b)  # fast_dllm.dec:10
    x = draw(m, p, key)  # fast_dllm.dec:11
    p_2 = gather_2(m, p, open_)  # fast_dllm.dec:12
    p_raw = face(m, p_2, face='raw')
    return (x, p_raw)


def c_at_10(m, p_model, b, key, open_, tau, c):
    x, p_raw = p_raw_at_10(m, p_model, b, key, open_)  # fast_dllm.dec:10
    x_2 = gather(m, x, open_)  # fast_dllm.dec:12
    p = lookup(m, p_raw, x_2)
    ge = map_ge(m, p, tau)  # helpers.dec:3
    surest = first_max(m, p)
    or_ = map_or(m, ge, surest)
    c_2 = canvas_put_token(m, c, open_, x_2, or_, kind='token', has_mask=True, open=True)  # fast_dllm.dec:12
    return c_2


def fast_dllm(m, model, length, block, tau):
    """Fast-dLLM with its dual cache (Wu et al., 2025: "Fast-dLLM: Training-free Acceleration of Diffusion LLM by
    Enabling KV Cache and Parallel Decoding"): decide every cell of the block whose confidence reaches tau, at
    least the surest; what lies outside the block is computed once a block.
    """
    c = canvas_new(m, length)  # fast_dllm.dec:5
    all_ = canvas_get(m, c, field='all')  # fast_dllm.dec:6
    first = take_first(m, all_, 0)
    memory = yield m.memory(model, c, {'at': first})
    cells = positions_blocks(m, c, block, kind='blocks')  # fast_dllm.dec:8
    entered_model, c_2 = (-1), c
    for i in range(len_of(m, cells)):
        b = gather(m, cells, i)
        mem_model, entered_model_2, c_3 = memory, entered_model, c_2  # fast_dllm.dec:9
        i_2 = 0
        while True:
            any_ = reduce_at_9(m, c_3, b)
            if not any_:
                break
            m.check_waiting('stdlib/fast_dllm.dec:9:9', i_2)
            all_2 = canvas_get(m, c_3, field='all')  # fast_dllm.dec:10
            cells_2 = positions_start(m, b, kind='start')
            n = as_int(m, cells_2)
            if n != entered_model_2:  # policies.dec:10
                first_2 = take_first_2(m, all_2, 0)
                G = yield m.memory(model, c_3, {'at': first_2})
                R = all_2
            else:
                cells_3 = positions_minus(m, all_2, b, kind='minus')
                G = memory_only(m, mem_model, cells_3, kind='only')
                R = b
            p_model = yield m.evaluate(model, c_3, {'at': R, 'given': G})  # fast_dllm.dec:10
            mem_model = yield m.memory(model, c_3, {'at': R, 'given': G})
            key = noise(m, i, i_2, kind='race', site='fast_dllm.2')  # fast_dllm.dec:11
            open_ = open_at_12(m, c_3, b)  # fast_dllm.dec:12
            c_3 = c_at_10(m, p_model, b, key, open_, tau, c_3)  # fast_dllm.dec:10
            entered_model_2 = n
            i_2 += 1
        memory, entered_model, c_2 = mem_model, entered_model_2, c_3
    commit(m, c_2)  # fast_dllm.dec:13
