def topk_at_15(m, q, k):
    q_raw = face(m, q, face='raw')  # eagle2.dec:15
    topk_2 = topk(m, q_raw, k)
    return topk_2


def t_at_15(m, q, k, t):
    value = topk_at_15(m, q, k)  # eagle2.dec:15
    t_2, _ = tree_grow(m, t, value)
    new_2 = tree_nodes(m, t_2, which='new')  # eagle2.dec:16
    logprob = tree_get(m, t_2, column='logprob')
    item = gather(m, logprob, new_2)
    best = select_top(m, new_2, k, item)
    t_3 = tree_front(m, t_2, best)
    return t_3


def t_at_17(m, t, budget):
    drafted = tree_nodes(m, t, which='drafted')  # eagle2.dec:17
    logprob = tree_get(m, t, column='logprob')
    item = gather(m, logprob, drafted)
    best = select_top(m, drafted, budget, item)
    t_2 = tree_keep(m, t, best)
    return t_2


def y_at_14(m, p, key, children):
    y = draw(m, p, key)  # rules.dec:14
    count = len_of(m, children)  # rules.dec:15
    return (y, count)


def x_at_15(m, children, i, y):
    x = gather(m, children, i)  # rules.dec:15
    eq = map_eq(m, x, y)  # rules.dec:16
    return (x, eq)


def eagle2(m, target, head, depth, k, budget):
    """EAGLE-2 (Li et al., 2024: "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees"): a head on
    the target's features grows a tree by cumulative confidence, the best `budget` nodes of it are verified.
    """
    p_target = yield m.evaluate(target, context(m), {})  # eagle2.dec:9
    key = noise(m, kind='output', site='output')
    x = draw(m, p_target, key)
    commit(m, x)  # eagle2.dec:10
    i = 0
    while not done(m):  # eagle2.dec:11
        m.check_progress('stdlib/eagle2.dec:11:5', i)
        t = tree_new(m, context(m), until=('limit', 'place', 'ends'))  # eagle2.dec:12
        for i_2 in range(depth):  # eagle2.dec:13
            if m.full(t, 'frontier'):
                break
            frontier = tree_nodes(m, t, which='frontier')  # eagle2.dec:14
            memory = yield m.memory(target, context(m, parent=True), {})
            q = yield m.evaluate(head, frontier, {'tree': t, 'given': memory})
            t = t_at_15(m, q, k, t)  # eagle2.dec:15
        t_2 = t_at_17(m, t, budget)  # eagle2.dec:17
        p_target_2 = yield m.evaluate(target, t_2, {})  # eagle2.dec:18

        def match(depth_2, p, children):
            y, count = y_at_14(m, p, key, children)  # rules.dec:14
            acc, has_acc = None, False  # rules.dec:15
            for i_3 in range(count):
                x_2, eq = x_at_15(m, children, i_3, y)
                if eq:  # rules.dec:16
                    acc, has_acc = x_2, True
                if has_acc:
                    break
            not_has_acc = not has_acc  # rules.dec:15
            if not_has_acc:
                emit = y
            else:
                emit = None
            return has_acc, acc, not_has_acc, emit

        accepted = walk(m, t_2, p_target_2, match, scope='node')  # eagle2.dec:18
        commit(m, accepted)  # eagle2.dec:19
        i += 1
