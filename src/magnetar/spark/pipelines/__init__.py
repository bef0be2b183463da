"""Pipelines that every team around a messaging system writes, ready to run on Spark.

``magnetar pipeline NAME --config FILE`` runs one, by :func:`magnetar.spark.pipelines.run.run_pipeline`.
"""
